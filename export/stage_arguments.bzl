"""What the programs of all stages have in common."""

# One thread and one set of instructions: sums in another order would be other bytes.
SAME_BYTES = {
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_multi_thread_eigen=false",
}

def stage_arguments(ctx):
    """The arguments that every stage's program takes.

    Args:
      ctx: the rule's context.

    Returns:
      an Args with the target's label, which a failure names as what to run again.
    """
    arguments = ctx.actions.args()
    arguments.add("//%s:%s" % (ctx.label.package, ctx.label.name), format = "--label=%s")
    return arguments

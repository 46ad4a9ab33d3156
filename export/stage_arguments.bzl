"""What the programs of all stages have in common."""

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

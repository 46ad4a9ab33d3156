"""The stages of an export as rules: each makes one artifact from the one before.

    traced_step(name = "m.traced", checkpoint = "@gemma3_270m//:model.gguf", context = 1024)
    fused_step(name = "m.fused", step = ":m.traced")
    bf16_step(name = "m.bf16", step = ":m.fused")
    torq_program(name = "m.vmfb", step = ":m.bf16")
    cpu_program(name = "m.cpu", step = ":m.fused")
    torq_bundle(name = "m", torq = ":m.vmfb", cpu = ":m.cpu", fused = ":m.fused", checkpoint = …)
"""

load("//export:stage_arguments.bzl", "SAME_BYTES", "stage_arguments")
load("//export/cpu:flags.bzl", "CPU_FLAGS", "CPU_TARGET")
load("//export/torq:flags.bzl", "TORQ_FLAGS")

StepInfo = provider(
    "A decode step on its way to the NPU.",
    fields = {
        "counts": "dict of string to File: JSON of what each stage so far counted.",
        "description": "File: JSON of the model, its ports and its tensors.",
        "module": "File: MLIR bytecode; None once it is compiled.",
        "program": "File: the compiled program; None before.",
    },
)

def _output_groups(info, timeline = []):
    return OutputGroupInfo(
        counts = depset([info.description] + info.counts.values()),
        description = depset([info.description]),
        timeline = depset(timeline),
    )

def _artifact(ctx, file):
    return DefaultInfo(files = depset([file]), runfiles = ctx.runfiles([file]))

def _providers(ctx, file, info):
    return [_artifact(ctx, file), info, _output_groups(info)]

def _traced_step_impl(ctx):
    module = ctx.actions.declare_file(ctx.label.name + ".mlirbc")
    description = ctx.actions.declare_file(ctx.label.name + ".json")
    arguments = stage_arguments(ctx)
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add(ctx.attr.context, format = "--context=%s")
    arguments.add(ctx.attr.head, format = "--head=%s")
    arguments.add(ctx.attr.quantise, format = "--quantise=%s")
    arguments.add(ctx.attr.requantise, format = "--requantise=%s")
    arguments.add_all(
        ["%s=%s" % item for item in ctx.attr.projections.items()],
        format_each = "--projection=%s",
    )
    importance = [ctx.file.importance] if ctx.file.importance else []
    arguments.add_all(importance, format_each = "--importance=%s")
    arguments.add(module, format = "--module=%s")
    arguments.add(description, format = "--description=%s")
    ctx.actions.run(
        arguments = [arguments],
        env = SAME_BYTES,
        executable = ctx.executable._trace,
        inputs = [ctx.file.checkpoint] + importance,
        mnemonic = "TorqTrace",
        outputs = [module, description],
        progress_message = "Tracing one decode step of %s" % ctx.label,
    )
    return _providers(ctx, module, StepInfo(
        counts = {},
        description = description,
        module = module,
        program = None,
    ))

traced_step = rule(
    implementation = _traced_step_impl,
    attrs = {
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "context": attr.int(doc = "Positions of the cache.", mandatory = True),
        "head": attr.string(doc = "Block type of the head; empty: as the projections."),
        "importance": attr.label(
            allow_single_file = [".npz"],
            doc = "The importance matrix that Q4_GPTQ needs.",
        ),
        "projections": attr.string_dict(doc = "Pattern to block type."),
        "quantise": attr.string(
            default = "Q8_0",
            doc = "Block type for projections whose own type has no packed form.",
        ),
        "requantise": attr.string(doc = "Block type that every projection is brought to."),
        "_trace": attr.label(cfg = "exec", default = "//export/trace", executable = True),
    },
    doc = "GGUF to StableHLO, every weight bound as a packed constant.",
)

def _pass(ctx, pass_name, progress, arguments, inputs):
    """Runs one pass over the module of ctx.attr.step."""
    step = ctx.attr.step[StepInfo]
    module = ctx.actions.declare_file(ctx.label.name + ".mlirbc")
    counts = ctx.actions.declare_file(ctx.label.name + ".json")
    arguments.add(pass_name, format = "--pass=%s")
    arguments.add(step.module, format = "--input=%s")
    arguments.add(module, format = "--output=%s")
    arguments.add(counts, format = "--counts=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._run_pass,
        inputs = inputs + [step.module],
        mnemonic = "TorqPass",
        outputs = [module, counts],
        progress_message = progress + " %s" % ctx.label,
    )
    return _providers(ctx, module, StepInfo(
        counts = dict(step.counts, **{pass_name: counts}),
        description = step.description,
        module = module,
        program = None,
    ))

_PASS_ATTRS = {
    "step": attr.label(doc = "The stage before.", mandatory = True, providers = [StepInfo]),
    "_run_pass": attr.label(cfg = "exec", default = "//export/passes:run_pass", executable = True),
}

def _fused_step_impl(ctx):
    description = ctx.attr.step[StepInfo].description
    arguments = stage_arguments(ctx)
    arguments.add(description, format = "--description=%s")
    return _pass(ctx, "fuse", "Fusing the block-quantised matmuls of", arguments, [description])

fused_step = rule(
    implementation = _fused_step_impl,
    attrs = _PASS_ATTRS,
    doc = "Puts one block-quantised matmul in the place of dequantise + dot_general.",
)

def _bf16_step_impl(ctx):
    return _pass(ctx, "bf16", "Converting to bf16", stage_arguments(ctx), [])

bf16_step = rule(
    implementation = _bf16_step_impl,
    attrs = _PASS_ATTRS,
    doc = "Converts the step from float32 to bf16.",
)

def _torq_program_impl(ctx):
    step = ctx.attr.step[StepInfo]
    torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
    program = ctx.actions.declare_file(ctx.label.name)
    counts = ctx.actions.declare_file(ctx.label.name + ".json")
    timeline = ctx.actions.declare_file(ctx.label.name + ".timeline.csv")
    arguments = stage_arguments(ctx)
    arguments.add(step.module, format = "--module=%s")
    arguments.add(program, format = "--program=%s")
    arguments.add(counts, format = "--counts=%s")
    arguments.add(timeline, format = "--timeline=%s")
    arguments.add(torq.compiler.dirname, format = "--tools=%s")
    arguments.add_all(TORQ_FLAGS, format_each = "--flag=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._compile,
        inputs = [step.module],
        mnemonic = "TorqCompile",
        outputs = [program, counts, timeline],
        progress_message = "Compiling %s for SL2610 (minutes for a whole model)" % ctx.label,
        tools = torq.files,
    )
    info = StepInfo(
        counts = dict(step.counts, compile = counts),
        description = step.description,
        module = None,
        program = program,
    )
    return [_artifact(ctx, program), info, _output_groups(info, [timeline])]

torq_program = rule(
    implementation = _torq_program_impl,
    attrs = {
        "step": attr.label(doc = "The bf16 stage.", mandatory = True, providers = [StepInfo]),
        "_compile": attr.label(cfg = "exec", default = "//export/torq:compile", executable = True),
    },
    doc = "Compiles the step for the NPU: one dispatch, every projection packed, or an error.",
    toolchains = ["//third_party/torq:toolchain_type"],
)

def _cpu_program_impl(ctx):
    step = ctx.attr.step[StepInfo]
    program = ctx.actions.declare_file(ctx.label.name + ".vmfb")
    counts = ctx.actions.declare_file(ctx.label.name + ".json")
    arguments = stage_arguments(ctx)
    arguments.add(step.module, format = "--module=%s")
    arguments.add(program, format = "--program=%s")
    arguments.add(counts, format = "--counts=%s")
    arguments.add(CPU_TARGET, format = "--target=%s")
    arguments.add_all(CPU_FLAGS, format_each = "--flag=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._compile,
        inputs = [step.module],
        mnemonic = "CpuCompile",
        outputs = [program, counts],
        progress_message = "Compiling %s for the CPU" % ctx.label,
    )
    return _providers(ctx, program, StepInfo(
        counts = dict(step.counts, cpu = counts),
        description = step.description,
        module = None,
        program = program,
    ))

cpu_program = rule(
    implementation = _cpu_program_impl,
    attrs = {
        "step": attr.label(doc = "The fused stage.", mandatory = True, providers = [StepInfo]),
        "_compile": attr.label(cfg = "exec", default = "//export/cpu:compile", executable = True),
    },
    doc = "Compiles the fused float32 step for the CPU of a development machine.",
)

def _torq_bundle_impl(ctx):
    step = ctx.attr.torq[StepInfo]
    cpu = ctx.attr.cpu[StepInfo]
    fused = ctx.attr.fused[StepInfo]
    counts = dict(cpu.counts, **step.counts)
    torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
    bundle = ctx.actions.declare_directory(ctx.label.name)
    arguments = stage_arguments(ctx)
    arguments.add(ctx.label.name, format = "--name=%s")
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add(ctx.file.checkpoint_info, format = "--checkpoint_info=%s")
    arguments.add(step.description, format = "--description=%s")
    arguments.add(step.program, format = "--torq_program=%s")
    arguments.add(cpu.program, format = "--cpu_program=%s")
    arguments.add(fused.module, format = "--stablehlo=%s")
    arguments.add_all(
        ["%s=%s" % (stage, file.path) for stage, file in counts.items()],
        format_each = "--counts=%s",
    )
    arguments.add(torq.version, format = "--torq_version=%s")
    arguments.add(bundle.path, format = "--bundle=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._bundle,
        inputs = [
            ctx.file.checkpoint,
            ctx.file.checkpoint_info,
            cpu.program,
            fused.module,
            step.description,
            step.program,
        ] + counts.values(),
        mnemonic = "TorqBundle",
        outputs = [bundle],
        progress_message = "Writing the bundle %s" % ctx.label,
    )
    return [_artifact(ctx, bundle), step]

torq_bundle = rule(
    implementation = _torq_bundle_impl,
    attrs = {
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "checkpoint_info": attr.label(
            allow_single_file = [".json"],
            doc = "Name and licence of the checkpoint.",
            mandatory = True,
        ),
        "cpu": attr.label(doc = "The step for a CPU.", mandatory = True, providers = [StepInfo]),
        "fused": attr.label(doc = "The fused stage.", mandatory = True, providers = [StepInfo]),
        "torq": attr.label(doc = "The step for the NPU.", mandatory = True, providers = [StepInfo]),
        "_bundle": attr.label(cfg = "exec", default = "//export/bundle", executable = True),
    },
    doc = "A folder with the programs, the embedding rows, the tokenizer and a manifest.",
    toolchains = ["//third_party/torq:toolchain_type"],
)

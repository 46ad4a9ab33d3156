"""The report of a bundle: its program in the simulator beside the float32 reference.

    step_report(name = "m.report", bundle = ":m", checkpoint = "@gemma3_270m//:model.gguf")
"""

load("//export:stage_arguments.bzl", "stage_arguments")

# "<bos>The capital of France is Paris. The capital of Italy is" in Gemma's vocabulary.
GEMMA_PROMPT = [2, 818, 5279, 529, 7001, 563, 9079, 236761, 669, 5279, 529, 11702, 563]

# "<|im_start|>user\nThe capital of France is<|im_end|>\n<|im_start|>assistant\nThe capital of France
# is" in SmolLM2's vocabulary.
SMOLLM2_PROMPT = [1, 4093, 198, 504, 3575, 282, 4649, 314, 2, 198, 1, 520, 9531, 198, 504, 3575, 282, 4649, 314]

def _step_report_impl(ctx):
    torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
    report = ctx.actions.declare_file(ctx.label.name + ".json")
    arguments = stage_arguments(ctx)
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add(ctx.file.bundle.path, format = "--bundle=%s")
    arguments.add(torq.runner.dirname, format = "--tools=%s")
    arguments.add_all(ctx.attr.tokens, format_each = "--token=%s")
    arguments.add(report, format = "--report=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._report,
        inputs = [ctx.file.bundle, ctx.file.checkpoint],
        mnemonic = "TorqReport",
        outputs = [report],
        progress_message = "Simulating one step of %s (minutes for a whole model)" % ctx.attr.bundle.label,
        tools = torq.files,
    )
    return [DefaultInfo(files = depset([report]), runfiles = ctx.runfiles([report]))]

step_report = rule(
    implementation = _step_report_impl,
    attrs = {
        "bundle": attr.label(allow_single_file = True, doc = "The bundle.", mandatory = True),
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "tokens": attr.int_list(default = GEMMA_PROMPT, doc = "Token ids; the last one is compared."),
        "_report": attr.label(cfg = "exec", default = "//tools/report", executable = True),
    },
    doc = "Agreement of the compiled step with float32, as JSON; fails below its gate.",
    toolchains = ["//third_party/torq:toolchain_type"],
)

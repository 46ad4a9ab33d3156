"""The importance matrix of a checkpoint, from texts.

    importance_matrix(name = "m.importance", checkpoint = "@gemma3_270m//:model.gguf")
"""

load("//export:stage_arguments.bzl", "SAME_BYTES", "stage_arguments")

def _importance_matrix_impl(ctx):
    matrix = ctx.actions.declare_file(ctx.label.name + ".npz")
    arguments = stage_arguments(ctx)
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add_all(ctx.files.texts, format_each = "--text=%s")
    arguments.add_all(ctx.attr.matrices, format_each = "--matrix=%s")
    arguments.add(matrix, format = "--output=%s")
    ctx.actions.run(
        arguments = [arguments],
        env = SAME_BYTES,
        executable = ctx.executable._importance,
        inputs = [ctx.file.checkpoint] + ctx.files.texts,
        mnemonic = "Importance",
        outputs = [matrix],
        progress_message = "Measuring what the matrices of %s are given" % ctx.label,
    )
    return [DefaultInfo(files = depset([matrix]))]

importance_matrix = rule(
    implementation = _importance_matrix_impl,
    attrs = {
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "matrices": attr.string_list(
            default = ["output"],
            doc = "Patterns of matrices: `output` (the head), `attn_q`, `blk.3.ffn_*`.",
        ),
        "texts": attr.label_list(
            allow_files = [".txt"],
            default = ["//export/calibration:texts"],
            doc = "The texts.",
        ),
        "_importance": attr.label(cfg = "exec", default = "//tools/importance", executable = True),
    },
    doc = "Second moments of what a checkpoint's matrices are given on texts.",
)

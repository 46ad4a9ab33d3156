"""The report of a bundle, and what its build must reach.

    projection_sensitivity(name = "m.sensitivity", checkpoint = "@gemma3_270m//:model.gguf")
    bundle_report(
        name = "m.report",
        bundle = ":m",
        checkpoint = "@gemma3_270m//:model.gguf",
        json = "m.report.json",
        page = "m.report.html",
    )
"""

load("//export:stage_arguments.bzl", "stage_arguments")

# What a real model must reach; tools/report/gates.py says against what.
GATES = {
    "bf16_kv_cosine": "0.9998",
    "bf16_top_1": "0.98",
    "head_cosine": "0.998",
    "head_rescored_top_1": "0.999",
    "simulated_cosine": "0.999",
    "simulated_sound": "1",
}

# Steps that the simulator runs: two texts, one position beyond Gemma's window.
STEPS = [
    "prose:12",
    "long:600",
]

def _bundle_report_impl(ctx):
    torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
    report, page = ctx.outputs.json, ctx.outputs.page
    sensitivity = [ctx.file.sensitivity] if ctx.file.sensitivity else []
    arguments = stage_arguments(ctx)
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add(ctx.file.bundle.path, format = "--bundle=%s")
    arguments.add(torq.runner.dirname, format = "--tools=%s")
    arguments.add_all(ctx.files.texts, format_each = "--text=%s")
    arguments.add_all(ctx.attr.steps, format_each = "--step=%s")
    arguments.add_all(
        ["%s=%s" % gate for gate in ctx.attr.gates.items()],
        format_each = "--gate=%s",
    )
    arguments.add_all(sensitivity, format_each = "--sensitivity=%s")
    arguments.add(report, format = "--report=%s")
    arguments.add(page, format = "--page=%s")
    ctx.actions.run(
        arguments = [arguments],
        # Where matplotlib keeps its list of fonts.
        env = {"MPLCONFIGDIR": "/tmp/torq-matplotlib"},
        executable = ctx.executable._report,
        inputs = [ctx.file.bundle, ctx.file.checkpoint] + ctx.files.texts + sensitivity,
        mnemonic = "TorqReport",
        outputs = [report, page],
        progress_message = "Comparing the stages of %s (minutes for a whole model)" % ctx.attr.bundle.label,
        tools = torq.files,
    )
    files = [report, page]
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

bundle_report = rule(
    implementation = _bundle_report_impl,
    attrs = {
        "bundle": attr.label(allow_single_file = True, doc = "The bundle.", mandatory = True),
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "gates": attr.string_dict(default = GATES, doc = "What must be reached, by name."),
        "json": attr.output(doc = "The numbers.", mandatory = True),
        "page": attr.output(doc = "The page.", mandatory = True),
        "sensitivity": attr.label(allow_single_file = [".json"], doc = "A projection_sensitivity."),
        "steps": attr.string_list(
            default = STEPS,
            doc = "TEXT:POSITION: what the simulator runs.",
        ),
        "texts": attr.label_list(
            allow_files = [".txt"],
            default = ["//tools/report:texts"],
            doc = "What every stage reads.",
        ),
        "_report": attr.label(cfg = "exec", default = "//tools/report", executable = True),
    },
    doc = "Agreement of an export's stages, as JSON and as a page; fails below a gate.",
    toolchains = ["//third_party/torq:toolchain_type"],
)

def _projection_sensitivity_impl(ctx):
    table = ctx.actions.declare_file(ctx.label.name + ".json")
    arguments = stage_arguments(ctx)
    arguments.add(ctx.file.checkpoint, format = "--gguf=%s")
    arguments.add(ctx.file.importance, format = "--importance=%s")
    arguments.add_all(ctx.files.texts, format_each = "--text=%s")
    arguments.add(table, format = "--output=%s")
    ctx.actions.run(
        arguments = [arguments],
        executable = ctx.executable._sensitivity,
        inputs = [ctx.file.checkpoint, ctx.file.importance] + ctx.files.texts,
        mnemonic = "Sensitivity",
        outputs = [table],
        progress_message = "Measuring what 4 bits cost each projection of %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([table]))]

projection_sensitivity = rule(
    implementation = _projection_sensitivity_impl,
    attrs = {
        "checkpoint": attr.label(allow_single_file = [".gguf"], doc = "The GGUF file.", mandatory = True),
        "importance": attr.label(
            allow_single_file = [".npz"],
            doc = "An importance_matrix of all inputs.",
            mandatory = True,
        ),
        "texts": attr.label_list(
            allow_files = [".txt"],
            default = ["//tools/report:texts/%s.txt" % name for name in ("code", "multilingual", "prose")],
            doc = "What is read.",
        ),
        "_sensitivity": attr.label(cfg = "exec", default = "//tools/report:sensitivity", executable = True),
    },
    doc = "The KL divergence that 4 bits cost each projection, as JSON.",
)

"""The public face of the export: a GGUF checkpoint becomes a bundle for the Torq NPU.

    load("//export:defs.bzl", "torq_decoder")

    torq_decoder(
        name = "functiongemma_torq",
        checkpoint = "functiongemma",
        context = 1024,
    )
"""

load(
    "//export/private:stages.bzl",
    "bf16_step",
    "cpu_program",
    "fused_step",
    "torq_bundle",
    "torq_program",
    "traced_step",
)
load("//tools/importance:importance.bzl", "importance_matrix")
load("//tools/report:report.bzl", "GATES", "STEPS", "bundle_report", "projection_sensitivity")

# What runs a bundle.
_PROGRAMS = ["bench_host", "call", "chat", "serve"]

def _calibrated(head, projections, sensitivity):
    """Patterns of the matrices whose inputs must be known."""
    matrices = ["output"] if head.lower() == "q4_gptq" else []
    matrices += [pattern for pattern, kind in projections.items() if kind.lower() == "q4_gptq"]
    return matrices + (["blk.*"] if sensitivity else [])

def _runnable(name, package, program, source, args, data, kwargs):
    """Makes `:NAME.PROGRAM`, which is PACKAGE:PROGRAM, of SOURCE.py, with arguments and files."""
    main = "%s:%s.py" % (package, source)
    native.py_binary(
        name = "%s.%s" % (name, program),
        srcs = [main],
        args = args,
        data = data,
        main = main,
        deps = ["%s:%s" % (package, program)],
        **kwargs
    )

def torq_decoder(
        name,
        checkpoint = None,
        context = 1024,
        head = "",
        requantise = "",
        quantise = "Q8_0",
        projections = {},
        calibration = ["//export/calibration:texts"],
        gguf = None,
        checkpoint_info = None,
        report_steps = STEPS,
        report_texts = ["//tools/report:texts"],
        gates = GATES,
        sensitivity = False,
        **kwargs):
    """Makes one label for each artifact of an export.

    `:NAME` is the bundle; `:NAME.gguf`, `:NAME.traced`, `:NAME.fused`, `:NAME.bf16` and
    `:NAME.vmfb` are the stages before it, `:NAME.cpu` the same step for this machine's CPU;
    `:NAME.report` compares the stages on texts, as JSON and as a page. `:NAME.chat`, `:NAME.call`
    and `:NAME.serve` run it; `:NAME.profile` says where a step's time goes on the NPU,
    `:NAME.bench_host` what a step costs the host, and `:NAME.bench_cpu` how it does beside
    llama.cpp on this CPU.

    Args:
      name: the bundle's name.
      checkpoint: a repository that gguf_checkpoint declares.
      context: positions of the cache.
      head: block type of the head: q8_0, q4_0, q4_1, q5_0, q5_1, or q4_gptq, 4 bits chosen by what
        the head is given on the calibration texts; empty keeps what the file has.
      requantise: block type that every projection is brought to; empty keeps the file's blocks.
      quantise: block type for projections whose own type has no packed form (floats, IQ types).
      projections: block types, as of the head, for some projections, by pattern: `attn_q`,
        `blk.3.ffn_*`. `:NAME.report` of a bundle with sensitivity says what each would cost.
      calibration: text files for q4_gptq; `:NAME.importance` is what they say of the checkpoint.
      gguf: a GGUF file in place of the checkpoint's.
      checkpoint_info: with gguf: JSON of the file's "name" and "licence".
      report_steps: TEXT:POSITION, steps that the report runs in the simulator; empty for none,
        None for no report.
      report_texts: text files that the report's stages read.
      gates: what the report must reach (tools/report/gates.py), or its build fails.
      sensitivity: whether the report measures what 4 bits would cost each projection.
      **kwargs: tags, visibility and the like, for every label.
    """
    gguf = gguf or "@%s//:model.gguf" % checkpoint
    checkpoint_info = checkpoint_info or "@%s//:checkpoint.json" % checkpoint
    native.alias(
        name = name + ".gguf",
        actual = gguf,
        **kwargs
    )
    calibrated = _calibrated(head, projections, sensitivity)
    if calibrated:
        importance_matrix(
            name = name + ".importance",
            checkpoint = gguf,
            matrices = calibrated,
            texts = calibration,
            **kwargs
        )
    traced_step(
        name = name + ".traced",
        checkpoint = gguf,
        context = context,
        head = head,
        importance = name + ".importance" if calibrated else None,
        projections = projections,
        quantise = quantise,
        requantise = requantise,
        **kwargs
    )
    fused_step(
        name = name + ".fused",
        step = name + ".traced",
        **kwargs
    )
    bf16_step(
        name = name + ".bf16",
        step = name + ".fused",
        **kwargs
    )
    torq_program(
        name = name + ".vmfb",
        step = name + ".bf16",
        **kwargs
    )
    cpu_program(
        name = name + ".cpu",
        step = name + ".fused",
        **kwargs
    )
    torq_bundle(
        name = name,
        checkpoint = gguf,
        checkpoint_info = checkpoint_info,
        cpu = name + ".cpu",
        fused = name + ".fused",
        torq = name + ".vmfb",
        **kwargs
    )
    bundle_flag = "--bundle=$(rootpath %s)" % name
    for program in _PROGRAMS:
        _runnable(name, "//runtime", program, program, [bundle_flag], [name], kwargs)
    for group in ("description", "timeline"):
        native.filegroup(
            name = "%s.%s" % (name, group),
            srcs = [name + ".vmfb"],
            output_group = group,
            **kwargs
        )
    _runnable(
        name,
        "//tools/profile",
        "profile",
        "profile_step",
        [
            "--description=$(rootpath %s.description)" % name,
            "--timeline=$(rootpath %s.timeline)" % name,
        ],
        [name + ".description", name + ".timeline"],
        kwargs,
    )
    gguf_flag = "--gguf=$(rootpath %s)" % gguf
    _runnable(
        name,
        "//tools/bench_cpu",
        "bench_cpu",
        "bench_cpu",
        [bundle_flag, gguf_flag],
        [gguf, name],
        kwargs,
    )
    if sensitivity:
        projection_sensitivity(
            name = name + ".sensitivity",
            checkpoint = gguf,
            importance = name + ".importance",
            **kwargs
        )
    if report_steps != None:
        bundle_report(
            name = name + ".report",
            bundle = name,
            checkpoint = gguf,
            gates = gates,
            json = name + ".report.json",
            page = name + ".report.html",
            sensitivity = name + ".sensitivity" if sensitivity else None,
            steps = report_steps,
            texts = report_texts,
            **kwargs
        )

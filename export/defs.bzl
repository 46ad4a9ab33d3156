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
load("//tools/report:report.bzl", "GEMMA_PROMPT", "step_report")

# What runs a bundle.
_PROGRAMS = ["call", "chat", "serve"]

def torq_decoder(
        name,
        checkpoint = None,
        context = 1024,
        head = "",
        requantise = "",
        quantise = "Q8_0",
        gguf = None,
        checkpoint_info = None,
        report_tokens = GEMMA_PROMPT,
        **kwargs):
    """Makes one label for each artifact of an export.

    `:NAME` is the bundle; `:NAME.gguf`, `:NAME.traced`, `:NAME.fused`, `:NAME.bf16` and
    `:NAME.vmfb` are the stages before it, `:NAME.cpu` the same step for this machine's CPU;
    `:NAME.report` compares the bundle with float32. `:NAME.chat`, `:NAME.call` and `:NAME.serve`
    run it.

    Args:
      name: the bundle's name.
      checkpoint: a repository that gguf_checkpoint declares.
      context: positions of the cache.
      head: block type of the head (Q8_0, Q4_0, Q4_1, …); empty keeps what the file has.
      requantise: block type that every projection is brought to; empty keeps the file's blocks.
      quantise: block type for projections whose own type has no packed form (floats, IQ types).
      gguf: a GGUF file in place of the checkpoint's.
      checkpoint_info: with gguf: JSON of the file's "name" and "licence".
      report_tokens: token ids that the report runs, the last one in the simulator, which gives a
        step 300 s; empty for no report.
      **kwargs: tags, visibility and the like, for every label.
    """
    gguf = gguf or "@%s//:model.gguf" % checkpoint
    checkpoint_info = checkpoint_info or "@%s//:checkpoint.json" % checkpoint
    native.alias(
        name = name + ".gguf",
        actual = gguf,
        **kwargs
    )
    traced_step(
        name = name + ".traced",
        checkpoint = gguf,
        context = context,
        head = head,
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
    for program in _PROGRAMS:
        native.py_binary(
            name = "%s.%s" % (name, program),
            srcs = ["//runtime:%s.py" % program],
            args = ["--bundle=$(rootpath %s)" % name],
            data = [name],
            main = "//runtime:%s.py" % program,
            deps = ["//runtime:" + program],
            **kwargs
        )
    if report_tokens:
        step_report(
            name = name + ".report",
            bundle = name,
            checkpoint = gguf,
            tokens = report_tokens,
            **kwargs
        )

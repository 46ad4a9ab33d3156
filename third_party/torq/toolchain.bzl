"""The Torq toolchain: what a rule resolves to compile for the NPU and to run its simulator.

    def _impl(ctx):
        torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
        ctx.actions.run(executable = torq.compiler, tools = torq.files, ...)
"""

TorqInfo = provider(
    "The programs of one Torq release.",
    fields = {
        "compiler": "File: torq-compile.",
        "files": "depset of File: everything that any of the programs needs to run.",
        "runner": "File: torq-run-module, which holds the simulator.",
        "version": "string: the release.",
    },
)

_PROGRAMS = ["compiler", "runner"]

def _torq_toolchain_impl(ctx):
    programs = {name: getattr(ctx.file, name) for name in _PROGRAMS}
    info = TorqInfo(
        files = depset(ctx.files.support),
        version = ctx.attr.version,
        **programs
    )
    return [platform_common.ToolchainInfo(torq = info), info]

torq_toolchain = rule(
    implementation = _torq_toolchain_impl,
    attrs = dict(
        {
            name: attr.label(allow_single_file = True, mandatory = True)
            for name in _PROGRAMS
        },
        support = attr.label_list(allow_files = True, doc = "All files of the programs."),
        version = attr.string(mandatory = True),
    ),
    doc = "One Torq release as a toolchain.",
)

def _torq_programs_impl(ctx):
    torq = ctx.toolchains["//third_party/torq:toolchain_type"].torq
    return [DefaultInfo(
        files = torq.files,
        runfiles = ctx.runfiles(transitive_files = torq.files),
    )]

torq_programs = rule(
    implementation = _torq_programs_impl,
    doc = "The resolved toolchain's files, as data for a test or a program that runs them.",
    toolchains = ["//third_party/torq:toolchain_type"],
)

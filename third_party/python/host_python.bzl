"""A Python toolchain around a CPython that the host has.

    host_python(name = "host_python")
    register_toolchains("@host_python//:toolchain")

Takes the first CPython of the supported range: the one that `--repo_env=TORQ_PYTHON=PROGRAM` names,
else those in the system's folders, else those on the PATH. The interpreter that actions get is a
wrapper that runs it without the host's site-packages and without the user's.
"""

SUPPORTED = "CPython 3.11 to 3.14"
_NAMES = ["python3", "python3.13", "python3.12", "python3.11", "python3.14"]

# What --incompatible_strict_action_env gives actions as PATH; found there, an interpreter has the
# same path on every such machine, and so have the actions that use it.
_SYSTEM_FOLDERS = ["/usr/bin", "/usr/local/bin"]

_PROBE = """
import sys
supported = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 14)
print(sys.executable, "%d.%d.%d" % sys.version_info[:3], "yes" if supported else "no")
"""

_WRAPPER = """#!/bin/sh
# -S and -s keep the host's and the user's site-packages out; -B writes no bytecode beside inputs.
exec {interpreter} -S -s -B "$@"
"""

_BUILD = """
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

package(default_visibility = ["//visibility:public"])

exports_files(["python"])

py_runtime(
    name = "runtime",
    interpreter = "python",
    python_version = "PY3",
    stub_shebang = "#!{shebang}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _candidates(repository_ctx):
    named = repository_ctx.os.environ.get("TORQ_PYTHON")
    if named:
        return [named]
    found = []
    for name in _NAMES:
        found += [folder + "/" + name for folder in _SYSTEM_FOLDERS]
        on_path = repository_ctx.which(name)
        if on_path:
            found.append(str(on_path))
    return [path for path in found if repository_ctx.path(path).exists]

def find_python(repository_ctx, needs = ""):
    """Finds the host's CPython.

    Args:
      repository_ctx: the rule's context.
      needs: arguments that the interpreter must also take, such as "-m pip --version".

    Returns:
      a struct of `path` and `version` ("3.11.7"). Fails where the host has none, naming what was
      tried and what to do.
    """
    tried = []
    for candidate in _candidates(repository_ctx):
        result = repository_ctx.execute([candidate, "-I", "-c", _PROBE])
        if result.return_code:
            tried.append("%s does not run" % candidate)
            continue
        path, version, supported = result.stdout.split("\n")[0].rsplit(" ", 2)
        if supported != "yes":
            tried.append("%s is %s" % (candidate, version))
            continue
        if needs and repository_ctx.execute([path] + needs.split(" ")).return_code:
            tried.append("%s does not take `%s`" % (candidate, needs))
            continue
        return struct(path = path, version = version)
    fail("no %s found%s: %s. Install one (on Debian: apt-get install python3 python3-pip), or name one by --repo_env=TORQ_PYTHON=PROGRAM." % (
        SUPPORTED,
        " that takes `%s`" % needs if needs else "",
        "; ".join(tried) or "none of %s is on the PATH" % ", ".join(_NAMES),
    ))

def _host_python_impl(repository_ctx):
    python = find_python(repository_ctx)
    in_strict_path = [folder for folder in _SYSTEM_FOLDERS if repository_ctx.path(folder + "/python3").exists]
    repository_ctx.file("python", _WRAPPER.format(interpreter = python.path))
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        shebang = "/usr/bin/env python3" if in_strict_path else python.path,
    ))

host_python = repository_rule(
    implementation = _host_python_impl,
    configure = True,
    doc = "A py toolchain around the host's CPython.",
    environ = ["PATH", "TORQ_PYTHON"],
)

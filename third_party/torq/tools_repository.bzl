"""Fetches the Torq compiler and its simulator, as programs that run on this host.

The wheels are tagged for CPython 3.12 and glibc 2.39, but the programs in them are native. Where
the host's glibc is older they run on Debian trixie's, fetched beside them: each program gets a
launcher that starts it through that release's dynamic loader, relative to the launcher's own
folder. Nothing is patched and no absolute path gets in, so the files are the same on every host.
"""

load("//third_party/debian:sysroot.bzl", "fetch_debian_packages", "is_debian")
load("//third_party/pypi:wheels.bzl", "fetch_wheels")

VERSION = "2.3.0"

# The hash is the release: another version needs another one, and must pass //tests/torq.
_REQUIREMENTS = """torq-compiler==2.3.0 --hash=sha256:b809e13f1b3d16784bea5e63e12b2846d718f1dba55f0248ed46278f6bd51d7d
torq-runtime==2.3.0 --hash=sha256:62998ab18edf59c53362d7ea250664ebb5d3fe02b271529f936dca58deb3af4c"""

_PLATFORM = [
    "--python-version",
    "3.12",
    "--implementation",
    "cp",
    "--platform",
    "manylinux_2_39_x86_64",
]

_PROGRAMS = {
    "iree-compile": "iree/compiler/_mlir_libs",
    "iree-lld": "iree/compiler/_mlir_libs",
    "iree-opt": "iree/compiler/_mlir_libs",
    "iree-run-module": "iree/_runtime_libs",
    "torq-compile": "iree/compiler/_mlir_libs",
    "torq-run-module": "torq/_runtime_libs",
}

_LIBRARIES = {
    "libIREECompiler.so": "iree/compiler/_mlir_libs",
    "libcoralnpu_simulator_mpact.so": "iree/_runtime_libs",
}

_NEEDED_GLIBC = (2, 39)
_SYSROOT_SUITE = "trixie"
_SYSROOT_PACKAGES = ["libc6", "libgcc-s1", "libstdc++6"]
_SYSROOT_FILES = {
    "ld-linux-x86-64.so.2": "usr/lib64",
    "libc.so.6": "usr/lib/x86_64-linux-gnu",
    "libdl.so.2": "usr/lib/x86_64-linux-gnu",
    "libgcc_s.so.1": "usr/lib/x86_64-linux-gnu",
    "libm.so.6": "usr/lib/x86_64-linux-gnu",
    "libpthread.so.0": "usr/lib/x86_64-linux-gnu",
    "librt.so.1": "usr/lib/x86_64-linux-gnu",
    "libstdc++.so.6": "usr/lib/x86_64-linux-gnu",
}

# The simulator gives a dispatch 300 s by the clock (TorqHw::wait), and a real model's takes two
# minutes on an idle machine and more than 300 s beside other work. With a clock a hundred times
# slower its results do not depend on that. Where this host is no Debian it keeps its own clock.
_SLOWED = "torq-run-module"
_SLOW_CLOCK = "libfaketime.so.1"
_SLOW_CLOCK_PACKAGE = "libfaketime"
_SLOW_CLOCK_FOLDER = "usr/lib/x86_64-linux-gnu/faketime"

# A program starts others (torq-compile starts iree-lld) from the folder of its executable, which
# is the loader's: so loader, launchers and programs share one folder.
_LAUNCHER = """#!/bin/sh
here=$(dirname "$0")
exec env {environment}{loader}"$here/{program}.bin" "$@"
"""
_LOADER = '"$here/ld-linux-x86-64.so.2" --library-path "$here" '
_ON_HOST = 'LD_LIBRARY_PATH="$here" '
_SLOW = "FAKETIME='+0 x0.01' FAKETIME_DISABLE_SHM=1 "

_BUILD = """load("@{workspace}//third_party/torq:toolchain.bzl", "torq_toolchain")

package(default_visibility = ["//visibility:public"])

torq_toolchain(
    name = "tools",
    compiler = "bin/torq-compile",
    runner = "bin/torq-run-module",
    support = glob(["bin/*"]),
    version = "{version}",
)

# What runs on a board, for tests of what we send there; the wheel's native part is for others.
py_library(
    name = "torq_runtime",
    srcs = glob(["python/**/*.py"]),
    imports = ["python"],
)

exports_files(["sysroot.txt"])
"""

_RUNTIME_MODULES = ["__init__", "base", "profiling", "utils", "vmfb"]

def _glibc(repository_ctx):
    result = repository_ctx.execute(["getconf", "GNU_LIBC_VERSION"])
    words = result.stdout.strip().split(" ")
    if result.return_code or len(words) != 2:
        fail("getconf GNU_LIBC_VERSION says %r; the Torq tools need Linux with glibc" % (result.stdout + result.stderr))
    return tuple([int(number) for number in words[1].split(".")[:2]])

def _launcher(program, on_sysroot, slow_clock):
    """The text of a program's launcher."""
    environment, loader = "", ""
    slow = slow_clock and program == _SLOWED
    if slow:
        environment = _SLOW
    if on_sysroot:
        loader = _LOADER
        if slow:
            loader += '--preload "$here/%s" ' % _SLOW_CLOCK
    else:
        environment += _ON_HOST
        if slow:
            environment += 'LD_PRELOAD="$here/%s" ' % _SLOW_CLOCK
    return _LAUNCHER.format(environment = environment, loader = loader, program = program)

def _take(repository_ctx, source, target):
    repository_ctx.file(target, "")
    result = repository_ctx.execute(["cp", "--dereference", str(repository_ctx.path(source)), str(repository_ctx.path(target))])
    if result.return_code:
        fail("%s is not in what was fetched: %s" % (source, result.stderr))

def _torq_tools_impl(repository_ctx):
    arch = repository_ctx.execute(["uname", "-m"]).stdout.strip()
    if arch != "x86_64":
        fail("the Torq compiler %s has no release for %s; build on x86-64 Linux" % (VERSION, arch))
    wheels = fetch_wheels(repository_ctx, _REQUIREMENTS, "wheels", _PLATFORM)
    for wheel in wheels:
        # unzip refuses members that would leave the folder.
        result = repository_ctx.execute(["unzip", "-q", "-o", str(wheel), "-d", "unpacked"])
        if result.return_code:
            fail("unzip %s: %s" % (wheel, result.stderr))
    repository_ctx.file("bin/.keep", "")
    files = {name: "unpacked/" + folder for name, folder in _LIBRARIES.items()}
    packages = []
    on_sysroot = _glibc(repository_ctx) < _NEEDED_GLIBC
    if on_sysroot:
        packages = _SYSROOT_PACKAGES
        files.update({name: "sysroot/" + folder for name, folder in _SYSROOT_FILES.items()})
    slow_clock = is_debian(repository_ctx)
    if slow_clock:
        packages = packages + [_SLOW_CLOCK_PACKAGE]
        files[_SLOW_CLOCK] = "sysroot/" + _SLOW_CLOCK_FOLDER
    if packages:
        packages = fetch_debian_packages(repository_ctx, _SYSROOT_SUITE, packages, "sysroot")
    for name, folder in files.items():
        _take(repository_ctx, folder + "/" + name, "bin/" + name)
    for name, folder in _PROGRAMS.items():
        _take(repository_ctx, "unpacked/%s/%s" % (folder, name), "bin/%s.bin" % name)
        repository_ctx.file("bin/" + name, _launcher(name, on_sysroot, slow_clock))
    repository_ctx.file("python/torq/__init__.py", "")
    for name in _RUNTIME_MODULES:
        _take(repository_ctx, "unpacked/torq/runtime/%s.py" % name, "python/torq/runtime/%s.py" % name)
    for folder in ("wheels", "unpacked", "sysroot", "bin/.keep"):
        repository_ctx.delete(folder)
    repository_ctx.file("sysroot.txt", "\n".join(packages) + "\n")
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        version = VERSION,
        workspace = repository_ctx.attr._toolchain.workspace_name,
    ))

torq_tools = repository_rule(
    implementation = _torq_tools_impl,
    attrs = {"_toolchain": attr.label(default = "//third_party/torq:toolchain.bzl")},
    doc = "torq-compile, torq-run-module (the simulator) and the IREE programs beside them.",
    environ = ["PATH", "TORQ_PYTHON"],
)

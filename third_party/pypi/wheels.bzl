"""Repository rules around a hash-locked requirements file: one repository for each wheel.

    wheel_index(name = "pypi", requirements = "//third_party/pypi:requirements.txt")
    load("@pypi//:wheels.bzl", "wheel_repositories")
    wheel_repositories()

A wheel is fetched by pip, which checks its hash, and only when a target that is built needs it.
"""

load("//third_party/python:host_python.bzl", "find_python")

_MIN_PIP = "-m pip --version"

# Platforms of markers that no machine of this workspace has.
_ELSEWHERE = ["os_name == 'nt'", "sys_platform == 'emscripten'", "sys_platform == 'win32'"]

_INDEX = """load("@{workspace}//third_party/pypi:wheels.bzl", "wheel")

# Package to the lines of the requirements file that lock it.
PACKAGES = {packages}

def wheel_repositories():
    for package, requirement in PACKAGES.items():
        wheel(
            name = "pypi_" + package,
            packages = PACKAGES.keys(),
            requirement = requirement,
        )
"""

def normalise(name):
    """A package's name as a label: lower case, underscores (PEP 503, but for the underscore)."""
    return name.strip().lower().replace("-", "_").replace(".", "_")

def _locked(text):
    """Splits a requirements file into the lines of each package."""
    packages = {}
    current = None
    for line in text.split("\n"):
        if not line.strip() or line.strip().startswith("#"):
            continue
        if not line.startswith(" "):
            requirement = line.split(";")
            marker = requirement[1] if len(requirement) > 1 else ""
            elsewhere = [platform for platform in _ELSEWHERE if platform in marker]
            current = None if elsewhere else normalise(line.split("==")[0])
            if current:
                packages[current] = line.strip()
        elif current:
            packages[current] += "\n" + line.strip()
    return packages

def _wheel_index_impl(repository_ctx):
    packages = _locked(repository_ctx.read(repository_ctx.attr.requirements))
    if not packages:
        fail("%s locks no package; run third_party/pypi/update_lock" % repository_ctx.attr.requirements)
    repository_ctx.file("BUILD.bazel", "")
    repository_ctx.file("wheels.bzl", _INDEX.format(
        packages = repr(packages),
        workspace = repository_ctx.attr.requirements.workspace_name,
    ))

wheel_index = repository_rule(
    implementation = _wheel_index_impl,
    attrs = {
        "requirements": attr.label(
            doc = "A requirements file with a version and hashes for every package.",
            mandatory = True,
        ),
    },
    doc = "Reads a lock file into `wheel_repositories()`.",
)

def fetch_wheels(repository_ctx, requirements, folder, extra = [], otherwise = ""):
    """Downloads locked wheels by pip into a folder of the repository.

    Args:
      repository_ctx: the rule's context.
      requirements: text of a requirements file with a hash for every wheel.
      folder: where the wheels go.
      extra: more arguments of `pip download`, such as another platform.
      otherwise: what a failure says that can be done instead.

    Returns:
      the paths of the wheels.
    """
    pip = find_python(repository_ctx, needs = _MIN_PIP)
    repository_ctx.file("requirements.txt", requirements + "\n")
    repository_ctx.report_progress("pip download " + requirements.split("\n")[0])
    result = repository_ctx.execute(
        [pip.path, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"] +
        ["--only-binary=:all:", "--requirement", "requirements.txt", "--dest", folder] + extra,
        timeout = 1800,
    )
    if result.return_code:
        fail("pip could not fetch %s:\n%s\nCheck the network and pip's configuration, then run the command again. %s" % (
            requirements.split(" ")[0],
            result.stderr,
            otherwise,
        ))
    repository_ctx.delete("requirements.txt")
    return repository_ctx.path(folder).readdir()

def _wheel_impl(repository_ctx):
    version = find_python(repository_ctx).version.split(".")
    pip = find_python(repository_ctx, needs = _MIN_PIP)
    target = ".".join(version[:2])
    wheels = fetch_wheels(repository_ctx, repository_ctx.attr.requirement, "wheel", [
        "--python-version",
        target,
    ])
    result = repository_ctx.execute(
        [pip.path, "-I", repository_ctx.path(repository_ctx.attr._unpack), str(wheels[0]), ".", target] +
        repository_ctx.attr.packages,
    )
    if result.return_code:
        fail("%s: %s" % (repository_ctx.name, result.stderr))
    repository_ctx.delete("wheel")

wheel = repository_rule(
    implementation = _wheel_impl,
    attrs = {
        "packages": attr.string_list(doc = "Every locked package: those of its dependencies that count."),
        "requirement": attr.string(doc = "Version, marker and hashes, as in the lock.", mandatory = True),
        "_unpack": attr.label(default = "//third_party/pypi:unpack_wheel.py"),
    },
    doc = "One wheel as a py_library `:lib`, with its programs in `:programs`.",
    environ = ["PATH", "TORQ_PYTHON"],
)

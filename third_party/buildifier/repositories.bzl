"""buildifier, from its npm package: npm fetches it, and its digest is pinned here."""

_PACKAGE = "@bazel/buildifier@8.2.1"
_INTEGRITY = "sha512-eZ/Aq+2r4PcJa6LbPCT6ffgIJfTU/gYilqIzoX2OLM4nNkbQC6tTMPZNn7aHHjhGPxbNLv41zm4Xqt1olCLgXw=="

_BUILD = """package(default_visibility = ["//visibility:public"])

exports_files(["buildifier"])
"""

# Compares the archive with an npm integrity string (sha512, base64), then unpacks one program.
_UNPACK = """
set -eu
digest='require("crypto").createHash("sha512").update(require("fs").readFileSync(0)).digest("base64")'
found=sha512-$(cat bazel-buildifier-*.tgz | node -p "$digest")
[ "$found" = "$1" ] || { echo "its integrity is $found; $1 is pinned" >&2; exit 1; }
tar -xzf bazel-buildifier-*.tgz package/buildifier-linux_amd64
mv package/buildifier-linux_amd64 buildifier
chmod 755 buildifier
rm -r package bazel-buildifier-*.tgz
"""

def _buildifier_impl(repository_ctx):
    if not repository_ctx.which("npm"):
        fail("buildifier comes from npm, which is not on the PATH; install it (on Debian: apt-get install npm), or leave out //tools/lint")
    fetched = repository_ctx.execute(["npm", "pack", "--silent", _PACKAGE], timeout = 600)
    if fetched.return_code:
        fail("npm could not fetch %s: %s" % (_PACKAGE, fetched.stderr))
    unpacked = repository_ctx.execute(["sh", "-c", _UNPACK, "sh", _INTEGRITY])
    if unpacked.return_code:
        fail("%s: %s" % (_PACKAGE, unpacked.stderr))
    repository_ctx.file("BUILD.bazel", _BUILD)

buildifier = repository_rule(
    implementation = _buildifier_impl,
    doc = "buildifier for x86-64 Linux.",
    environ = ["PATH"],
)

def buildifier_repositories():
    """Declares @buildifier; it is fetched when the linters run."""
    buildifier(name = "buildifier")

"""The Torq tools' repository and toolchain."""

load("//third_party/torq:tools_repository.bzl", "torq_tools")

# buildifier: disable=unnamed-macro
def torq_repositories():
    """Declares @torq_tools and registers the toolchain; it is fetched when something resolves it."""
    torq_tools(name = "torq_tools")
    native.register_toolchains("//third_party/torq:toolchain")

#!/bin/sh
echo "coverage is not supported with Debian's Bazel 4.2.3; use Bazel 7" >&2
exit 1

"""The test macro of this workspace."""

def pytest_test(name, srcs, deps = [], args = [], **kwargs):
    """A py_test that runs pytest on its sources.

    Args:
      name: the target's name.
      srcs: test files; every one must collect at least one test.
      deps: libraries that they import; pytest itself is added.
      args: more arguments of pytest.
      **kwargs: passed to py_test. Tests of minutes have the tag "long".
    """
    native.py_test(
        name = name,
        srcs = srcs + ["//tests:pytest_main.py"],
        args = args + ["$(rootpath %s)" % src for src in srcs],
        main = "//tests:pytest_main.py",
        deps = deps + ["//third_party/pypi:pytest"],
        **kwargs
    )

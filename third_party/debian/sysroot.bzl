"""Fetches Debian packages of a newer release than the host's, without touching the host.

apt runs with a state of its own inside the repository: the machine's sources with the suite's name
changed, its keyrings, its proxies. Nothing is installed; the packages are unpacked.
"""

_APT_CONF = """Dir::State "{root}/state";
Dir::State::status "{root}/state/status";
Dir::Cache "{root}/cache";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "{root}/sources.list.d";
APT::Sandbox::User "root";
"""

# Keeps the lines and stanzas of the machine's own Debian suite, under the wanted suite's name.
_REWRITE = """
set -eu
root=$1 wanted=$2
. /etc/os-release
mkdir -p "$root/state/lists/partial" "$root/cache/archives/partial" "$root/sources.list.d"
: >"$root/state/status"; : >"$root/sources.list"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  [ -f "$file" ] || continue
  grep -qw "$VERSION_CODENAME" "$file" || continue
  grep -qiE '^(deb |Types:)' "$file" || continue
  case $file in *.sources) suffix=sources ;; *) suffix=list ;; esac
  sed "s/\\b$VERSION_CODENAME\\b/$wanted/g" "$file" >"$root/sources.list.d/$(basename "$file" ".$suffix").$suffix"
done
"""

def is_debian(repository_ctx):
    """Whether this machine is a Debian, whose apt can fetch from Debian's other suites."""
    return "\nID=debian" in "\n" + repository_ctx.read("/etc/os-release")

def fetch_debian_packages(repository_ctx, suite, packages, folder):
    """Unpacks packages of a Debian suite into a folder of the repository.

    Args:
      repository_ctx: the rule's context.
      suite: a Debian release's code name, such as "trixie".
      packages: names of packages.
      folder: where their files go.

    Returns:
      a list of "package version" of what was fetched. Fails where this machine has no Debian
      sources, or apt cannot fetch from them, with apt's own words.
    """
    root = str(repository_ctx.path("apt"))
    if not is_debian(repository_ctx):
        fail("packages of Debian %s are needed (%s), and this machine is no Debian; use Debian 12 or newer, or a system with glibc 2.39 or newer" % (
            suite,
            ", ".join(packages),
        ))
    _run(repository_ctx, ["sh", "-c", _REWRITE, "sh", root, suite], "reading the apt sources")
    repository_ctx.file("apt/apt.conf", _APT_CONF.format(root = root))
    environment = {"APT_CONFIG": root + "/apt.conf"}
    repository_ctx.report_progress("apt-get update for Debian " + suite)
    _run(repository_ctx, ["apt-get", "update", "--quiet=2"], "apt-get update for " + suite, environment)
    _run(repository_ctx, ["apt-get", "download", "--quiet=2"] + packages, "apt-get download", environment, "apt/cache")
    fetched = []
    for archive in repository_ctx.path("apt/cache").readdir():
        if archive.basename.endswith(".deb"):
            _run(repository_ctx, ["dpkg", "-x", str(archive), str(repository_ctx.path(folder))], "dpkg -x")
            fetched.append(" ".join(archive.basename.split("_")[:2]))
    repository_ctx.delete("apt")
    return sorted(fetched)

def _run(repository_ctx, command, what, environment = {}, folder = ""):
    result = repository_ctx.execute(command, environment = environment, timeout = 900, working_directory = folder)
    if result.return_code:
        fail("%s failed:\n%s%s" % (what, result.stdout, result.stderr))

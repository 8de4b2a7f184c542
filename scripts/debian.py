"""Fetch packages of any Debian suite with an apt that keeps its state to itself.

The machine's apt knows the address of the archive, its proxy and its keys; all of that is used and
no host is named here. Signatures and checksums are apt's own business. Nothing is installed, no
root is needed, and the machine's package lists are neither read nor changed.
"""

import re
from pathlib import Path

from commands import DOWNLOAD_SECS, QUICK_SECS, UnavailableError, run

ARCHIVE_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OS_RELEASE = Path("/etc/os-release")


class PrivateApt:
    """One suite of the machine's Debian archive, seen through a private apt."""

    def __init__(self, folder: Path, *, suite: str) -> None:
        """Fetch the suite's index into a folder that must not exist yet."""
        self.folder = folder
        for needed in ("state/lists/partial", "cache/archives/partial"):
            (folder / needed).mkdir(parents=True)
        (folder / "status").touch()
        options = f"[signed-by={ARCHIVE_KEYS}] " if ARCHIVE_KEYS.exists() else ""
        source = f"{options}{archive_site()} {suite} main"
        (folder / "sources.list").write_text(f"deb {source}\ndeb-src {source}\n")
        # `#clear` drops the hooks that container images add to `update`: they act on the whole
        # machine, and fail for anyone but root. The sandbox user could not enter our folder.
        (folder / "apt.conf").write_text(
            "#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\n'
            f'Dir::Cache "{folder}/cache";\nDir::Etc::sourcelist "{folder}/sources.list";\n'
            'Dir::Etc::sourceparts "/dev/null";\nDir::Etc::preferencesparts "/dev/null";\n'
            'APT::Sandbox::User "";\nAcquire::Languages "none";\nAcquire::Retries "2";\n'
            'Acquire::http::Timeout "30";\nAcquire::https::Timeout "30";\n'
        )
        self._apt("apt-get", "update", "--error-on=any")

    def download(self, *packages: str) -> list[Path]:
        """Download binary packages and return their files, in the order asked for."""
        if packages:
            self._apt("apt-get", "download", *packages)
        return [next(self.folder.glob(f"{package}_*.deb")) for package in packages]

    def source_versions(self, package: str) -> list[str]:
        """Return the versions of a source package in this suite, perhaps none."""
        try:
            shown = self._apt("apt-cache", "showsrc", "--only-source", package)
        except UnavailableError:  # the index is here, so this is apt's way to say: no such package
            return []
        return re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)

    def download_source(self, package: str, version: str) -> Path:
        """Download a source package and return its upstream archive."""
        self._apt("apt-get", "source", "--download-only", f"{package}={version}")
        return next(self.folder.glob(f"{package}_*.orig.tar.*"))

    def _apt(self, tool: str, *arguments: str) -> str:
        command = [tool, *arguments, "-q", "-c", str(self.folder / "apt.conf")]
        return run(command, cwd=self.folder, timeout_secs=DOWNLOAD_SECS)


def archive_site() -> str:
    """Return the address of the Debian archive that this machine's apt is configured with."""
    described = OS_RELEASE.read_text(encoding="utf-8") if OS_RELEASE.exists() else ""
    if not re.search(r'^ID="?debian"?$', described, re.MULTILINE):
        message = "it comes from Debian's archive and this machine is not Debian"
        raise UnavailableError(message)
    # Without `--no-release-info` apt keeps silent until somebody has run `apt-get update`.
    listing = ["apt-get", "indextargets", "--no-release-info", "--format", "$(SITE) $(RELEASE)"]
    for line in run(listing, timeout_secs=QUICK_SECS).splitlines():
        site, _, suite = line.partition(" ")
        # A suite with a dash or slash is -security, -updates or -backports, perhaps kept elsewhere.
        if suite and not re.search(r"[-/]", suite):
            return site
    message = "apt has no Debian archive configured"
    raise UnavailableError(message)


def unpack(deb: Path, into: Path) -> None:
    """Unpack the files of a binary package below a folder."""
    run(["dpkg", "-x", str(deb), str(into)], timeout_secs=QUICK_SECS)


def missing_library_packages(binary: Path, deb: Path) -> list[str]:
    """Return those library packages that `deb` depends on and without which `binary` cannot load.

    A library's package is named for its soname (`liblzf.so.1` is in `liblzf1`); only names that a
    package of this Depends line explains are returned.
    """
    depends = run(["dpkg-deb", "-f", str(deb), "Depends"], timeout_secs=QUICK_SECS)
    loaded = run(["ldd", str(binary)], timeout_secs=QUICK_SECS)
    missing = {name.partition(".so")[0] for name in re.findall(r"(\S+) => not found", loaded)}
    packages = re.findall(r"\blib[a-z0-9+.-]+", depends)
    return [package for package in packages if package.rstrip("0123456789") in missing]

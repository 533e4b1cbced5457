"""Find or install a Java that Spark runs on, and write its home for the Makefile.

A Java is installed only if that is allowed.

    python tools/setup_java.py .venv/java_home

Any Java 17 or 21 will do. If there is none, root on Debian or Ubuntu gets OpenJDK from the system's
packages; anybody else is told the command to run. Standard library only: it runs before anything is
installed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = (17, 21)
DEBIAN_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")  # Debian 13 has only the second
COMMANDS = {
    "Debian or Ubuntu": f"sudo apt-get install -y {DEBIAN_PACKAGES[0]}   (Debian 13: {DEBIAN_PACKAGES[1]})",
    "macOS": "brew install openjdk@17",
    "Windows": "winget install EclipseAdoptium.Temurin.17.JRE",
}
# Folders of Java homes, if neither JAVA_HOME nor PATH names one: Linux packages, macOS packages,
# Homebrew, SDKMAN.
PLACES = (
    ("/usr/lib/jvm", "*"),
    ("/Library/Java/JavaVirtualMachines", "*/Contents/Home"),
    ("/opt/homebrew/opt", "openjdk*/libexec/openjdk.jdk/Contents/Home"),
    ("/usr/local/opt", "openjdk*/libexec/openjdk.jdk/Contents/Home"),
    ("~/.sdkman/candidates/java", "*"),
)


def homes() -> Iterator[Path]:
    """Yield every Java home of this machine once, the user's choice first."""
    candidates = [Path(chosen)] if (chosen := os.environ.get("JAVA_HOME")) else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve().parent.parent)
    for folder, pattern in PLACES:
        candidates += sorted(Path(folder).expanduser().glob(pattern))
    seen: set[Path] = set()
    for home in candidates:
        real = home.expanduser().resolve()
        if real not in seen and launcher(real).is_file():
            seen.add(real)
            yield home


def launcher(home: Path) -> Path:
    return home / "bin" / ("java.exe" if os.name == "nt" else "java")


def major_version(home: Path) -> int | None:
    """Return 17 for 17.0.15, 8 for 1.8.0_402; None if the Java does not start."""
    try:
        # -version, unlike the `release` file, also proves that this Java starts. It prints to
        # stderr.
        answer = subprocess.run([launcher(home), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version.group(1)) if answer.returncode == 0 and version else None


def find() -> tuple[Path | None, dict[Path, int | None]]:
    """Return the first Java that Spark runs on, and the versions of those passed over."""
    passed_over: dict[Path, int | None] = {}
    for home in homes():
        version = major_version(home)
        if version in SUPPORTED:
            return home, passed_over
        passed_over[home] = version
    return None, passed_over


def may_install() -> bool:
    return platform.system() == "Linux" and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> bool:
    apt("update")
    for package in DEBIAN_PACKAGES:
        print(f"java: none that Spark runs on; installing {package}", flush=True)
        if apt("install", "-y", "--no-install-recommends", package):
            return True
    return False


def apt(*arguments: str) -> bool:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", "-qq", *arguments], env=quiet, stdout=subprocess.DEVNULL).returncode == 0


def explain(passed_over: dict[Path, int | None]) -> str:
    wanted = " or ".join(map(str, SUPPORTED))
    lines = [f"java: Spark needs Java {wanted}, and there is none on this machine."]
    for home, version in passed_over.items():
        if version is None:
            lines.append(f"  {home}: does not start")
        else:
            lines.append(f"  {home}: Java {version} is too {'old' if version < min(SUPPORTED) else 'new'}")
    lines.append("Install one, then run the same make command again:")
    lines += [f"  {system + ':':<18}{command}" for system, command in COMMANDS.items()]
    lines.append("Or set JAVA_HOME to the folder of a Java that you have elsewhere.")
    return "\n".join(lines)


def main() -> int:
    home, passed_over = find()
    if home is None and may_install() and install():
        home, passed_over = find()
    if home is None:
        print(explain(passed_over), file=sys.stderr)
        return 1
    for other, version in passed_over.items():
        print(f"java: passing over {other} (Java {version or 'that does not start'})")
    print(f"java: Java {major_version(home)} in {home}")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(f"{home}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

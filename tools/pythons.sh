#!/usr/bin/env bash
# Print the Pythons of this machine that the project runs on, the newest first: version and path, one in a line.
# With an argument, print that one only. Without a usable Python, say in one sentence what to do, and exit 1.
#     bash tools/pythons.sh
#     bash tools/pythons.sh /opt/python/bin/python3.12
# A shell script, and one for bash 3.2 of macOS: it runs before a Python is known.
set -u

SUPPORTED="3.13 3.12 3.11" # the newest first; `requires-python` and the classifiers of pyproject.toml say the same
INSTALL="Install one (Debian, Ubuntu: apt-get install python3-venv; macOS: brew install python@3.13), or name yours: make setup PYTHON=/path/to/python3.13"
# Folders to search beside PATH and pyenv: Homebrew's, and the system's, which a shim of pyenv may hide.
PLACES=${PYTHON_PLACES:-/opt/homebrew/opt/python@VERSION/bin /usr/local/opt/python@VERSION/bin /usr/bin}
# The version and the path. In a virtual environment, the path of the Python that it was made with.
PROBE='import sys; print("%d.%d" % sys.version_info[:2], getattr(sys, "_base_executable", None) or sys.executable)'
# Modules that a Python can be built or packaged without.
MODULES="ensurepip sqlite3 ssl venv"

fail() {
    echo "setup: $*" >&2
    exit 1
}

# Print version and path of a program, nothing if it does not start. A shim of pyenv may be on PATH and not start.
probe() { "$1" -c "$PROBE" 2>/dev/null; }

# Print the modules that a Python lacks.
lacks() {
    for module in $MODULES; do
        "$1" -c "import $module" >/dev/null 2>&1 || echo "$module"
    done | paste -s -d ' ' -
}

# Print "too old" or "too new" for a version that is not supported.
judge() {
    case " $SUPPORTED " in *" $1 "*) return ;; esac
    if [ "${1%%.*}" -gt 3 ] || { [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -gt 13 ]; }; then echo "too new"; else echo "too old"; fi
}

# Print every program that may be a Python of a version.
candidates() {
    echo "python$1"
    for file in "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1".*/bin/python; do
        [ -x "$file" ] && echo "$file"
    done
    for folder in $PLACES; do
        echo "${folder//VERSION/$1}/python$1"
    done
    echo python3
    echo python
}

if [ $# -gt 0 ]; then
    command -v "$1" >/dev/null || fail "PYTHON=$1 is no program of this machine. $INSTALL"
    answer=$(probe "$1") || fail "PYTHON=$1 does not start as a Python. $INSTALL"
    verdict=$(judge "${answer%% *}")
    [ -z "$verdict" ] || fail "$1 is Python ${answer%% *}, which is $verdict: this needs Python 3.11, 3.12 or 3.13. $INSTALL"
    missing=$(lacks "$1")
    [ -z "$missing" ] || fail "$1 lacks $missing, which an environment needs. $INSTALL"
    echo "$answer"
    exit
fi

usable=
rejected=
for version in $SUPPORTED; do
    while read -r candidate; do
        answer=$(probe "$candidate") && [ "${answer%% *}" = "$version" ] || continue
        missing=$(lacks "$candidate")
        if [ -z "$missing" ]; then
            echo "$answer"
            usable=yes
            break
        fi
        rejected="${rejected:+$rejected; }${answer#* } lacks $missing"
    done <<EOF
$(candidates "$version")
EOF
done
[ -z "$usable" ] || exit 0
if [ -z "$rejected" ] && answer=$(probe python3); then
    rejected="python3 is ${answer%% *}, which is $(judge "${answer%% *}")"
fi
fail "this needs Python 3.11, 3.12 or 3.13, and there is none on this machine${rejected:+ ($rejected)}. $INSTALL"

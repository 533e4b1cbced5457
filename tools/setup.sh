#!/usr/bin/env bash
# Make .venv with the packages of requirements.lock, Java, and Spark's jars. `make setup` calls it; it works without make too.
#     bash tools/setup.sh                       # with the newest Python that it finds, or the present .venv
#     PYTHON=python3.12 bash tools/setup.sh     # with this one
#     bash tools/setup.sh environment           # only an empty .venv, if there is none
# What a set-up that ended early has done stays done: the next one goes on from there.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
PY=$VENV/bin/python
# Present while pip installs: a package of which pip was killed may look complete and lack files.
INSTALLING=$VENV/.installing
VERSION='import sys; print("%d.%d" % sys.version_info[:2])'

fail() {
    echo "setup: $*" >&2
    exit 1
}

environment() {
    local chosen= version=
    if [ -n "${PYTHON:-}" ]; then chosen=$(bash tools/pythons.sh "$PYTHON") || exit 1; fi
    if [ -e "$INSTALLING" ]; then
        echo "setup: the last set-up ended while it installed packages: $VENV is made anew"
        rm -rf "$VENV"
    elif version=$("$PY" -c "$VERSION" 2>/dev/null); then
        # Not removed by itself: it may hold packages that somebody added.
        bash tools/pythons.sh "$PY" >/dev/null 2>&1 ||
            fail "$VENV is of Python $version, which this does not run on. Remove it (rm -rf $VENV), then run make setup again"
        [ -z "$chosen" ] || [ "${chosen%% *}" = "$version" ] ||
            fail "$VENV is of Python $version, and PYTHON=$PYTHON is ${chosen%% *}. Remove it (rm -rf $VENV), then run make setup again"
        "$PY" -m pip --version >/dev/null 2>&1 || "$PY" -m ensurepip >/dev/null
        return
    elif [ -e "$VENV" ]; then
        echo "setup: the Python of $VENV does not start any more: $VENV is made anew"
        rm -rf "$VENV"
    fi
    if [ -z "$chosen" ]; then chosen=$(bash tools/pythons.sh) || exit 1; fi
    chosen=${chosen%%$'\n'*} # the newest
    echo "setup: $VENV of Python ${chosen%% *} (${chosen#* })"
    "${chosen#* }" -m venv "$VENV"
}

environment
[ "${1:-}" != environment ] || exit 0
"$PY" tools/setup_java.py "$VENV/java_home"
echo "setup: Python packages (about 1 GB the first time)"
touch "$INSTALLING"
QUIET=--quiet
[ ! -t 1 ] || QUIET= # pip draws its progress on a terminal: the first download takes minutes
# shellcheck disable=SC2086 # no word if it is empty
if ! "$PY" -m pip install $QUIET --no-compile --retries 5 --disable-pip-version-check -r requirements.lock ||
    ! "$PY" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; then
    # pip has told why, and has undone its work: only a killed pip leaves half a package.
    rm -f "$INSTALLING"
    fail "pip could not install the packages; its words are above. The first set-up needs a network, and so does one after requirements.lock has changed. Then run make setup again"
fi
rm -f "$INSTALLING"
# In as many processes as the machine has processors; pip would take one. Without it, every process
# compiles 2,000 modules anew.
"$PY" -m compileall -qq -j 0 "$VENV/lib" || true
JAVA_HOME=$(cat "$VENV/java_home") "$PY" tools/fetch_jars.py
touch "$VENV/.setup-done"

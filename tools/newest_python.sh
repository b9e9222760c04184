#!/usr/bin/env bash
# Print the newest Python 3 on the PATH that is newer than the given one and can make environments; print nothing where there is
# none, and say so on the standard error. Programs that stand for an inactive version of pyenv count.
#
#     tools/newest_python.sh .venv/bin/python
set -uo pipefail

number() { "$1" -c 'import sys; print(sys.version_info[0] * 100 + sys.version_info[1])'; }
real() { "$1" -c 'import ensurepip, sys, venv; print(sys.executable)' 2>/dev/null; }
inactive() { # the program behind a name of pyenv whose version is not the active one
    local version
    version="$(pyenv whence "${1##*/}" 2>/dev/null | tail -n 1)"
    [[ -n "$version" ]] && PYENV_VERSION="$version" real "$1"
}

best="" best_number="$(number "$1")"
IFS=: read -ra directories <<<"$PATH"
for directory in "${directories[@]}"; do
    for program in "$directory"/python3.[0-9]*; do
        [[ "$program" =~ /python3\.[0-9]+$ && -x "$program" ]] || continue
        found="$(real "$program" || inactive "$program")" || continue
        there="$(number "$found")"
        if ((there > best_number)); then
            best="$found" best_number="$there"
        fi
    done
done
if [[ -n "$best" ]]; then
    echo "$best"
else
    echo "No Python on the PATH is newer than that of $1 and makes environments." >&2
fi

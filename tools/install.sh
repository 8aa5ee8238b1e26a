#!/bin/sh
# Installs packages with pip, and prints only their names as pip collects them:  tools/install.sh PYTHON ARGUMENT...
# On a terminal each name replaces the one before. The stderr of pip is not changed.
set -eu
python=$1
shift
if [ -t 1 ]; then
    form='\r\033[K  %s' last='\r\033[K'
else
    form='  %s\n' last=''
fi
exec 4>&1
code=$(
    {
        {
            code=0
            PYTHONUNBUFFERED=1 "$python" -m pip install --progress-bar off "$@" || code=$?
            echo "$code" >&3
        } | while read -r word name rest; do
            case $word in
                Collecting) printf "$form" "${name%%[][<>=!~;(]*}" ;;
                Installing) [ "$name" != collected ] || printf "$form" "putting them in place" ;;
            esac
        done >&4
    } 3>&1
)
printf "$last"
exit "$code"

#!/bin/sh
# Installs with pip and says what, a name at a time, instead of everything or nothing:  tools/install.sh PYTHON ARGUMENT...
# At a terminal the names follow each other on one line. What pip has against it comes on stderr, as it is.
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

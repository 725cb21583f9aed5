#!/bin/sh
# Compiler wrapper for an example that the manifest declares as a program: compiles the example, and nothing else, to a
# static library at the path where cargo expects the program.
compiler=$1
shift
name='' kind='' folder='' extra='' before=''
for word do
    case $before in
        --crate-name) name=$word ;;
        --crate-type) kind=$word ;;
        --out-dir) folder=$word ;;
        -C) case $word in extra-filename=*) extra=${word#extra-filename=} ;; esac ;;
    esac
    before=$word
done
if [ "$name" != "$IFUNC_EXAMPLE" ] || [ "$kind" != bin ]; then
    exec "$compiler" "$@"
fi
left=$# before=''
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    [ "$before" = --crate-type ] && set -- "$@" staticlib || set -- "$@" "$word"
    before=$word
done
"$compiler" "$@" || exit
[ ! -f "$folder/lib$name$extra.a" ] || ln -f "$folder/lib$name$extra.a" "$folder/$name$extra"

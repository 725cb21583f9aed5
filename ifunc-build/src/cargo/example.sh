#!/bin/sh
# Stands in front of the compiler where an example is built whose manifest says that it is a program: of the example, and
# of nothing else, a static library is made, and put where cargo looks for the program.
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

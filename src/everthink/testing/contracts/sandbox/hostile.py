"""Scripts that try to take down whoever runs them, more than a hundred, by what they overload.

Some end with a crash of bashkit, which is the reason for the child around it. They are only ever to be run
behind limits of time, memory and processes.
"""

from __future__ import annotations

__all__ = ["HOSTILE"]

_DEEP = 20_000
_A = "a" * 41


def _nested(before: str, middle: str, after: str, levels: int = _DEEP) -> str:
    return before * levels + middle + after * levels


NESTING = {
    "command substitutions": "echo " + _nested("$(echo ", "x", ")"),
    "subshells": _nested("(", "true", ")"),
    "groups": _nested("{ ", "true;", "}"),
    "conditions": _nested("if true; then ", "true; ", "fi; "),
    "parentheses in arithmetic": "echo $((" + _nested("(", "1", ")") + "))",
    "signs in arithmetic": "echo $((" + "-" * _DEEP + "1))",
    "choices in arithmetic": "echo $((" + _nested("1?", "1", ":1") + "))",
    "lists in braces": "echo " + _nested("{a,", "b", "}"),
    "defaults of parameters": "echo " + _nested("${a:-", "x", "}"),
    "quotes around substitutions": "echo " + _nested('"$(echo ', "x", ')"'),
    "here-documents": "cat <<A\n$(cat <<B\n$(echo inner)\nB\n)\nA",
    "parentheses in awk": "awk 'BEGIN{print " + _nested("(", "1", ")") + "}'",
    "parentheses in jq": "jq -n '" + _nested("(", "1", ")") + "'",
    "lists in JSON": "printf '%s' '" + _nested("[", "", "]") + "' | jq .",
    "parentheses in bc": "echo '" + _nested("(", "1", ")") + "' | bc",
    "groups of a pattern": "echo a | grep -E '" + _nested("(", "a", ")") + "'",
    "parentheses of expr": "expr " + _nested("\\( ", "1", " \\)", 2_000),
    "shells in shells": "bash -c 'bash -c \"bash -c true\"'",
}

RECURSION = {
    "a function": "again() { again; }; again",
    "a function through eval": "again() { eval again; }; again",
    "a text that evaluates itself": 'x=\'eval "$x"\'; eval "$x"',
    "a file that sources itself": "echo 'source /tmp/me' > /tmp/me; source /tmp/me",
    "a file that runs itself": "echo 'bash /tmp/me' > /tmp/me; bash /tmp/me",
    "two aliases": "shopt -s expand_aliases; alias a=b; alias b=a; a",
    "a function of awk": "awk 'function f(n) { return f(n + 1) } BEGIN { f(1) }'",
    "a filter of jq": "echo 1 | jq 'def f: f; f'",
    "a filter of jq with an argument": "echo 1 | jq 'def f(x): f(x + 1); f(1)'",
    "links in a circle": "ln -s /tmp/b /tmp/a; ln -s /tmp/a /tmp/b; cat /tmp/a; find -L /tmp; ls -R /tmp",
    "a link to its own folder": "mkdir d; ln -s .. d/up; find -L . | head; cp -rL d e; grep -r x .",
}

LOOPS = {
    "while true": "while true; do :; done",
    "for without an end": "for ((;;)); do :; done",
    "processes without an end": "while true; do sleep 100 & done",
    "a fork bomb": "bomb() { bomb | bomb & }; bomb",
    "awk": "awk 'BEGIN { while (1) {} }'",
    "bc": "echo 'while (1) {}' | bc",
    "jq": "jq -n '[while(true; .)]'",
    "a substitution of sed": "echo a | sed ':again;s/a/aa/;tagain'",
    "a branch of sed": "echo a | sed ':again;bagain'",
    "sleep": "sleep 1000",
    "sleep with a limit": "timeout 1000 sleep 1000",
    "waiting for a sleeper": "sleep 1000 & wait",
    "reading what nobody writes": "mkfifo p; cat p",
    "reading input that is not there": "read x; echo got",
    "reading input by its name": "cat /dev/stdin",
    "choosing for ever": "select x in a b; do echo $x; break; done <<< 1",
}

GROWTH = {
    "a text that doubles": "x=a; while true; do x=$x$x; done",
    "an array": "a=(); i=0; while true; do a[$i]=$i; i=$((i + 1)); done",
    "an array with one far element": "a[999999999999]=1; echo ${#a[@]} ${a[@]}",
    "many variables": "for i in {1..50000}; do declare v$i=1; done; echo done",
    "a product of braces": "echo {1..100}{1..100}{1..100}{1..100}",
    "a range of braces": "echo {1..1000000000}",
    "a wide number": "printf '%1000000000d' 1",
    "a width from an argument": "printf '%*d' 2000000000 1 | wc -c",
    "many arguments": "printf '%s' " + "a " * 100_000 + "| wc -c",
    "a replacement": "x=$(printf 'a%.0s' {1..9999}); echo ${x//a/" + "b" * 500 + "} | wc -c",
    "a long line": "x=$(head -c 5000000 /dev/zero | tr '\\0' a); echo ${#x}",
    "a text of awk": "awk 'BEGIN { x = \"a\"; while (1) x = x x }'",
    "a wide number of awk": "awk 'BEGIN { printf \"%1000000000d\", 1 }'",
    "a range of jq": "jq -n '[range(1e10)] | length'",
    "a repetition of jq": "jq -n '\"a\" * 1000000000 | length'",
    "a power of bc": "echo '2^1000000' | bc | wc -c",
    "aliases of YAML": "printf '%s\\n' 'a: &a [x,x,x,x,x,x,x,x,x]' "
    + " ".join(
        f"'{name}: &{name} [{','.join([f'*{of}'] * 9)}]'" for of, name in zip("abcdef", "bcdefg", strict=True)
    )
    + " > /tmp/b.yml; yq . /tmp/b.yml | wc -c",
    "a format of date": "date +%" + "Y" * 100_000,
}

OUTPUT = {
    "yes": "yes",
    "yes into a file": "yes | cat > /tmp/y",
    "yes into xargs": "yes | xargs -I{} echo {}{}{}",
    "zeros": "cat /dev/zero | wc -c",
    "zeros into a file": "head -c 10000000000 /dev/zero > /tmp/z",
    "blocks of zeros": "dd if=/dev/zero of=/tmp/z bs=1M count=100000",
    "random bytes": "head -c 50000000 /dev/urandom | wc -c; cat /dev/urandom | head -c 100 | wc -c",
    "strings in random bytes": "head -c 5000000 /dev/urandom | strings | wc -l",
    "a long sequence": "seq 1 1000000000 | wc -l",
    "a long sequence, sorted": "seq 1 3000000 | sort -r | head -1",
    "a command for each number": "seq 1 100000 | xargs -n1 echo | wc -l",
    "base64 of base64": "head -c 15000000 /dev/zero | base64 | base64 | base64 | wc -c",
    "columns": "seq 1 50000 | column | wc -l",
    "two sequences side by side": "paste -d, <(seq 1 200000) <(seq 1 200000) | tail -1",
    "two sequences compared": "comm <(seq 1 100000) <(seq 1 100000) | wc -l",
    "a difference of everything": "seq 1 20000 > a; seq 20000 -1 1 > b; diff a b | wc -l",
    "a pipeline of thousands": "echo a " + "| cat " * 5_000,
    "thousands of here-documents": "".join(f"cat <<E{i}\nx\nE{i}\n" for i in range(3_000)),
}

FILES = {
    "a file that doubles": "echo aaaaaaaaaaaaaaaa > f; while true; do cat f f > g; mv g f; done",
    "a million files": "for i in $(seq 1 1000000); do echo x > /tmp/f$i; done",
    "a file for each line": "seq 1 100000 > s; split -l 1 s; ls | wc -l",
    "folders in folders": "p=/tmp; for i in $(seq 1 5000); do p=$p/d; mkdir -p $p; done;"
    " find / | wc -l; rm -rf /tmp/d",
    "a command for each file": "mkdir x; for i in {1..500}; do touch x/$i; done;"
    " find x -exec cat {} \\; | wc -c",
    "an archive of zeros": "head -c 15000000 /dev/zero > z; tar czf z.tgz z;"
    " for i in 1 2 3 4 5 6 7 8 9; do mkdir d$i; tar xzf z.tgz -C d$i; done; du -s .",
    "zeros packed twice": "head -c 15000000 /dev/zero | gzip | gzip -d | gzip | wc -c",
    "a tree of everything": "tree / | tail -1",
}

PATTERNS = {
    "grep -E": f"echo {_A}b | grep -E '(a+)+$'",
    "grep -P": f"echo {_A}b | grep -P '(a+)+$'",
    "a reference back": f"echo {_A[:30]}b | grep -E '^(a*)*\\1$'",
    "repetitions of repetitions": "echo a | grep -E '((((a{1,100}){1,100}){1,100}){1,100})'",
    "a test": f"x={_A}b; [[ $x =~ ^(a+)+$ ]]; echo $?",
    "stars": f"x={_A}b; [[ $x == *a*a*a*a*a*a*a*a*a*a*a*a*c ]]; echo $?",
    "stars of a case": f"x={_A}b; case $x in *a*a*a*a*a*a*a*a*c) echo y ;; *) echo n ;; esac",
    "repeated groups": f"shopt -s extglob; x={_A[:29]}b; [[ $x == +(+(a))c ]]; echo $?",
}

MACHINE = {
    "users and processes": "cat /etc/passwd /etc/shadow /proc/self/environ /proc/1/cmdline /proc/self/maps;"
    " ls /proc /root /home /",
    "environment": "env; echo $HOSTNAME; whoami; hostname; uname -a; id",
    "a socket by its name": "exec 3<>/dev/tcp/127.0.0.1/22; cat <&3; echo x > /dev/tcp/127.0.0.1/22",
    "clients": "curl -s http://127.0.0.1/; wget -q -O- http://127.0.0.1/; nc 127.0.0.1 22; ssh x",
    "other languages": "python3 -c 'print(1)'; node -e 1; perl -e 1; ts -e 1",
    "a database": "sqlite3 :memory: 'select 1'",
    "signals": "ps aux; kill -9 1; kill -9 -1; ulimit -a; nproc",
    "its own death": "trap true EXIT; trap 'kill $$' TERM; kill -9 $$; echo alive",
    "another program in its place": "exec /bin/sh; echo alive",
    "an end inside": "(exit 5); echo $?",
    "history": "set -o history; !!; fc -l",
    "a second process": "coproc cat; echo ok",
}

BYTES = {
    "zero bytes": "printf '\\0\\0' > n; cat n | wc -c; x=$(cat n); echo ${#x}",
    "no text": "printf '\\xff\\xfe' > n; cat n; grep x n; sed s/x/y/ n; sort n; echo ok",
    "letters cut in two": "x='äöü€😀'; echo $x | cut -c2; echo $x | cut -b2; echo ${x:1:2} ${x#?};"
    " printf '%.1s' 😀; echo 😀 | tr 😀 a; echo 😀 | fold -w1; echo 😀 | rev; echo 😀 | sed 's/./x/'",
    "large numbers": "numfmt --to=iec 1000000; factor 1000000007000000009; echo $((9223372036854775807 + 1))",
}

HOSTILE: dict[str, dict[str, str]] = {
    "nesting": NESTING,
    "recursion": RECURSION,
    "loops": LOOPS,
    "growth": GROWTH,
    "output": OUTPUT,
    "files": FILES,
    "patterns": PATTERNS,
    "machine": MACHINE,
    "bytes": BYTES,
}

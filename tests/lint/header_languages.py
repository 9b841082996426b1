#!/usr/bin/env python3
"""Every public header and every ..._INIT in it, in C11 and in C++11 to C++20, with g++ and clang++ and no warning.

    header_languages.py C_COMPILER README INCLUDE_FOLDER...

Each header is compiled alone, with a function that starts one of each struct from its INIT. What an INIT comes to is the
same bytes in C and in C++. The first program of the README compiles in all of these languages too. A C++ compiler that
is not installed is left out by name; without any of them the test is skipped (77), when C11 has passed.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FLAGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
CXX_STANDARDS = ["c++11", "c++14", "c++17", "c++20"]
CXX_COMPILERS = ["g++", "clang++"]
SKIPPED = 77


def inits(header):
    """Pairs of an INIT and its struct."""
    names = re.findall(r"^#define (DUNLIN_\w+)_INIT(?!\w|\()", header.read_text(), re.M)
    return [("%s_INIT" % name, name.lower()) for name in names]


def alone(header):
    lines = ["#include <dunlin/%s>" % header.name]
    for init, struct in inits(header):
        lines.append("%s test_of_%s(void);" % (struct, struct))
        lines.append("%s test_of_%s(void)\n{\n    %s value = %s;\n    return value;\n}" % (struct, struct, struct, init))
    return "\n".join(lines) + "\n"


def c_side(headers):
    """In C: where the bytes of each INIT lie."""
    lines = ["#include <dunlin/%s>" % header.name for header in headers]
    for header in headers:
        for init, struct in inits(header):
            lines.append("const void *c_%s(void);" % struct)
            lines.append("const void *c_%s(void)\n{\n    static const %s value = %s;\n    return &value;\n}" % (struct, struct, init))
    return "\n".join(lines) + "\n"


def cxx_side(headers):
    """In C++: the same bytes (padding stays zero in a place that was), and a size that is that of the struct."""
    lines = ["#include <dunlin/%s>" % header.name for header in headers]
    lines += ["#include <cstdio>", "#include <cstring>", "#include <new>"]
    body = []
    for header in headers:
        for init, struct in inits(header):
            lines.append('extern "C" const void *c_%s(void);' % struct)
            body.append(
                "    {\n        alignas(%s) unsigned char bytes[sizeof(%s)] = {0};\n        const %s *value = new (bytes) %s(%s);\n"
                "        if (value->struct_size != sizeof *value || std::memcmp(c_%s(), bytes, sizeof bytes) != 0) {\n"
                '            std::puts("%s");\n            n_bad++;\n        }\n    }' % (struct, struct, struct, struct, init, struct, init)
            )
    return "\n".join(lines) + "\nint main()\n{\n    int n_bad = 0;\n" + "\n".join(body) + "\n    return n_bad;\n}\n"


def program_of(readme):
    found = re.search(r"^```c\n(.*?)^```$", readme.read_text(), re.M | re.S)
    if not found:
        sys.exit("%s has no program" % readme)
    return found.group(1)


def run(what, command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        print("%s:\n%s%s" % (what, done.stdout, done.stderr))
    return done.returncode == 0


def main():
    c_compiler, readme = sys.argv[1], pathlib.Path(sys.argv[2])
    folders = [pathlib.Path(folder) for folder in sys.argv[3:]]
    includes = ["-I%s" % folder for folder in folders]
    headers = sorted(path for folder in folders for path in folder.glob("dunlin/*.h"))
    n_inits = sum(len(inits(header)) for header in headers)
    cxx = [compiler for compiler in CXX_COMPILERS if shutil.which(compiler)]
    is_ok = len(headers) > 0 and n_inits > 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sources = []
        for header in headers:
            sources.append(folder / ("%s_alone.c" % header.stem))
            sources[-1].write_text(alone(header))
        program = folder / "readme.c"
        program.write_text(program_of(readme))
        cxx_sources = [*sources, program]
        (folder / "c_side.c").write_text(c_side(headers))
        (folder / "cxx_side.cpp").write_text(cxx_side(headers))
        c_object = folder / "c_side.o"

        is_ok &= run("C11", [c_compiler, "-std=c11", *FLAGS, *includes, "-fsyntax-only", *sources, program])
        is_ok &= run("the INITs in C", [c_compiler, "-std=c11", *FLAGS, *includes, "-c", folder / "c_side.c", "-o", c_object])
        for compiler in cxx:
            for standard in CXX_STANDARDS:
                flags = ["-std=%s" % standard, *FLAGS, *includes]
                what = "%s, %s" % (compiler, standard)
                is_ok &= run(what, [compiler, *flags, "-fsyntax-only", "-x", "c++", *cxx_sources])
            both = folder / "both"
            is_ok &= run(
                "%s, the INITs" % compiler,
                [compiler, "-std=c++11", *FLAGS, *includes, folder / "cxx_side.cpp", c_object, "-o", both],
            ) and run("%s, INITs that are others than in C" % compiler, [both])
    print("%d headers, %d INITs: C11, %s" % (len(headers), n_inits, ", ".join(cxx) if cxx else "no C++ compiler"))
    for compiler in set(CXX_COMPILERS) - set(cxx):
        print("skipped: %s is not installed" % compiler)
    if not is_ok:
        return 1
    return 0 if cxx else SKIPPED


sys.exit(main())

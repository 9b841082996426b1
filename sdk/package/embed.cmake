# cmake -DINPUT=FILE -DNAME=c_name -DOUTPUT=FILE.c -P embed.cmake: a file as a C array with an ending 0.
file(READ ${INPUT} content HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${content}")
string(REGEX REPLACE "((0x..,){32})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT}
  "#include <stddef.h>\n"
  "extern const unsigned char ${NAME}[];\n"
  "extern const size_t ${NAME}_bytes;\n"
  "const unsigned char ${NAME}[] = {\n${bytes}0x00};\n"
  "const size_t ${NAME}_bytes = sizeof ${NAME} - 1;\n")

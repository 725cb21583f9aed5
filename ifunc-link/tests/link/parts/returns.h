/* Assembly of a function that returns a number. */
#ifdef __aarch64__
#define RETURNS(n) "mov w0,#" n "\nret\n"
#else
#define RETURNS(n) "mov $" n ",%eax\nret\n"
#endif

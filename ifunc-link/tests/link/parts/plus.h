/* Assembly of a function that returns its argument and a number. */
#ifdef __aarch64__
#define PLUS(n) "add x0,x0,#" n
#else
#define PLUS(n) "lea " n "(%rdi),%rax"
#endif

__asm__(".globl fixed\nfixed = 0x1234\n");

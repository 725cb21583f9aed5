##Machines: x86-64
## An offset in the GOT, of eight bytes.
        .section .text.reloc_got64_main,"ax",@progbits
        .globl reloc_got64_main
        .type reloc_got64_main,@function
reloc_got64_main:
        movabs $there@GOT,%rax
        xor %eax,%eax
        ret
        .size reloc_got64_main,.-reloc_got64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

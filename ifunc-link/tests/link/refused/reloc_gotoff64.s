##Machines: x86-64
## An offset from the GOT.
        .section .text.reloc_gotoff64_main,"ax",@progbits
        .globl reloc_gotoff64_main
        .type reloc_gotoff64_main,@function
reloc_gotoff64_main:
        movabs $here@GOTOFF,%rax
        xor %eax,%eax
        ret
        .size reloc_gotoff64_main,.-reloc_gotoff64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

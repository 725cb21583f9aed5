##Machines: x86-64
## The size of an object, of eight bytes.
        .section .text.reloc_size64_main,"ax",@progbits
        .globl reloc_size64_main
        .type reloc_size64_main,@function
reloc_size64_main:
        movabs $there@SIZE,%rax
        xor %eax,%eax
        ret
        .size reloc_size64_main,.-reloc_size64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

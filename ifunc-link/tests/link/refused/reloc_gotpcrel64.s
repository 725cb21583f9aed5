##Machines: x86-64
## The distance to an entry of the GOT, of eight bytes.
        .section .text.reloc_gotpcrel64_main,"ax",@progbits
        .globl reloc_gotpcrel64_main
        .type reloc_gotpcrel64_main,@function
reloc_gotpcrel64_main:
        .quad there@GOTPCREL
        xor %eax,%eax
        ret
        .size reloc_gotpcrel64_main,.-reloc_gotpcrel64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

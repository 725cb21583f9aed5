##Machines: x86-64
## The GOT itself, far away.
        .section .text.reloc_gotpc64_main,"ax",@progbits
        .globl reloc_gotpc64_main
        .type reloc_gotpc64_main,@function
reloc_gotpc64_main:
        movabs $_GLOBAL_OFFSET_TABLE_-.,%rbx
        xor %eax,%eax
        ret
        .size reloc_gotpc64_main,.-reloc_gotpc64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

##Machines: x86-64
## The size of an object.
        .section .text.reloc_size32_main,"ax",@progbits
        .globl reloc_size32_main
        .type reloc_size32_main,@function
reloc_size32_main:
        mov $there@SIZE,%eax
        xor %eax,%eax
        ret
        .size reloc_size32_main,.-reloc_size32_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8

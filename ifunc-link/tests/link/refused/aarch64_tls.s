##Machines: aarch64
// Every way to reach a thread-local variable.
        .section .tbss,"awT",@nobits
        .balign 8
counter: .zero 8
        .size counter,8
        .section .text.aarch64_tls_main,"ax",@progbits
        .globl aarch64_tls_main
        .type aarch64_tls_main,%function
aarch64_tls_main:
        adrp x0,:tlsdesc:counter
        ldr x1,[x0,:tlsdesc_lo12:counter]
        add x0,x0,:tlsdesc_lo12:counter
        .tlsdesccall counter
        blr x1
        adrp x2,:gottprel:counter
        ldr x2,[x2,:gottprel_lo12:counter]
        add x3,x3,:tprel_hi12:counter
        add x3,x3,:tprel_lo12_nc:counter
        adrp x4,:tlsgd:other
        add x0,x4,:tlsgd_lo12:other
        bl __tls_get_addr
        ret
        .size aarch64_tls_main,.-aarch64_tls_main

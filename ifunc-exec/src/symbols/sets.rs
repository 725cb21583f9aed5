//! Named sets of host names, so that a host need not list what every C author takes for granted.
//!
//! Addresses are those that the program was linked with: nothing is looked up at run time, and a static target has them
//! too. A program that allows no set links none of it.

use std::collections::HashSet;
use std::sync::LazyLock;

use crate::Symbol;

/// A set of names that a target's builder allows at once, by `allow_set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NamedSet {
    /// The C library as far as it computes, allocates, formats and prints: `<string.h>`, `<ctype.h>`, `<math.h>`,
    /// `<stdlib.h>` (`malloc`, `qsort`, `strtol`), `<stdio.h>` on the streams that are open (`printf`, `stdout`),
    /// `<time.h>` with `sleep` and its kin, `errno`, and the locks of `<pthread.h>`: mutexes, read-write locks, spin locks,
    /// condition variables, `pthread_once`, `pthread_self`.
    ///
    /// Not in it: what starts or ends processes and threads (`fork`, `system`, `exit`, `pthread_create`), jumps (`longjmp`), opens files or
    /// sockets, or changes what belongs to the whole process (`setenv`, `setlocale`, `signal`). `abort` and a failed
    /// `assert` end the invocation as a panic does, and the target lives on; only where an exported function of the host
    /// called back there is no way out but the end of the process. `fesetround` and `feraiseexcept` last until the
    /// invocation ends, and exported functions do not notice them.
    ///
    /// An ifunc that sleeps or waits for a lock keeps the thread that serves, and every source that it serves, waiting. A lock that
    /// an invocation holds when it panics stays locked.
    ///
    /// These functions run on the injected stack, unguarded; one that calls back (`qsort`, `bsearch`) is left by a jump if
    /// the callback panics. What an ifunc allocates and does not free is the target's.
    Libc,
}

impl NamedSet {
    /// What the names stand for.
    #[must_use]
    pub fn symbols(self) -> Vec<Symbol> {
        let addresses = match self {
            Self::Libc => libc::addresses(),
        };
        let symbol = |(name, address, kind): (_, *const (), _)| {
            // SAFETY: functions and variables of the C library, which C code takes for what its headers say.
            unsafe { Symbol::untyped(name, address.cast()) }.of_kind(kind)
        };
        addresses.into_iter().map(symbol).collect()
    }

    /// The set that has a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        // An image may import as many names as fit into it.
        static LIBC: LazyLock<HashSet<&str>> = LazyLock::new(|| libc::NAMES.iter().copied().collect());
        LIBC.contains(name).then_some(Self::Libc)
    }
}

mod libc {
    use ifunc::host::ExportKind;

    /// Declares names of the C library for their addresses alone: images know the types that they call them with.
    macro_rules! set {
        (
            functions { $($function:ident)* }
            data { $($data:ident)* }
            others { $($name:literal = $address:expr;)* }
        ) => {
            unsafe extern "C" {
                $(fn $function();)*
                $(static $data: *const ();)*
            }

            /// Apart from the addresses, so that asking whether a name is in the set links none of it.
            pub(super) static NAMES: &[&str] = &[$(stringify!($function),)* $(stringify!($data),)* $($name,)*];

            pub(super) fn addresses() -> Vec<(&'static str, *const (), ExportKind)> {
                vec![
                    $((stringify!($function), $function as *const (), ExportKind::Function),)*
                    $((stringify!($data), (&raw const $data).cast(), ExportKind::Data),)*
                    $(($name, $address as *const (), ExportKind::Function),)*
                ]
            }
        };
    }

    // `memcpy` and its kin need no permission: see `imports`.
    set! {
        functions {
            // <string.h>, <strings.h>
            bcopy bzero explicit_bzero ffs ffsl ffsll index memccpy memchr memmem memrchr mempcpy rawmemchr
            rindex stpcpy stpncpy strcasecmp strcasestr strcat strchr strchrnul strcmp strcoll strcpy strcspn
            strdup strerror strerror_r strncasecmp strncat strncmp strncpy strndup strnlen strpbrk strrchr
            strsep strspn strstr strtok strtok_r strxfrm
            // <ctype.h>, with what its macros become
            __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc isalnum isalpha isblank iscntrl isdigit
            isgraph islower isprint ispunct isspace isupper isxdigit tolower toupper
            // <stdlib.h>
            abs aligned_alloc atof atoi atol atoll bsearch calloc div drand48 erand48 free imaxabs imaxdiv labs
            ldiv llabs lldiv lrand48 malloc malloc_usable_size mblen mbstowcs mbtowc nrand48 posix_memalign
            qsort qsort_r rand rand_r random realloc reallocarray srand srandom strtod strtof strtoimax strtol
            strtold strtoll strtoul strtoull strtoumax wcstombs wctomb
            // <stdio.h>
            __isoc99_sscanf __isoc99_vsscanf asprintf clearerr dprintf feof ferror fflush fflush_unlocked
            fprintf fputc fputc_unlocked fputs fputs_unlocked fwrite fwrite_unlocked perror printf putc
            putc_unlocked putchar putchar_unlocked puts snprintf sprintf sscanf vasprintf vdprintf vfprintf
            vprintf vsnprintf vsprintf vsscanf
            // <errno.h>
            __errno_location
            // <time.h>
            asctime asctime_r clock clock_getres clock_gettime ctime ctime_r difftime gettimeofday gmtime
            gmtime_r localtime localtime_r mktime strftime time timegm
            // <time.h>, <unistd.h>, <sched.h>
            clock_nanosleep nanosleep sched_yield sleep usleep
            // <pthread.h>
            pthread_cond_broadcast pthread_cond_destroy pthread_cond_init
            pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy
            pthread_condattr_init pthread_condattr_setclock pthread_equal
            pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_timedlock
            pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_destroy pthread_mutexattr_init
            pthread_mutexattr_settype pthread_once pthread_rwlock_destroy pthread_rwlock_init
            pthread_rwlock_rdlock pthread_rwlock_tryrdlock pthread_rwlock_trywrlock pthread_rwlock_unlock
            pthread_rwlock_wrlock pthread_self pthread_spin_destroy pthread_spin_init pthread_spin_lock
            pthread_spin_trylock pthread_spin_unlock
            // <wchar.h>, <wctype.h>
            btowc iswalnum iswalpha iswdigit iswlower iswpunct iswspace iswupper mbrlen mbrtowc mbsrtowcs
            swprintf towlower towupper wcrtomb wcscat wcschr wcscmp wcscpy wcslen wcsncmp wcsncpy wcsrchr
            wcsrtombs wcsstr wcstod wcstol wcstoul wmemchr wmemcmp wmemcpy wmemmove wmemset
            // <math.h>, in double, float and long double
            acos acosf acosl acosh acoshf acoshl asin asinf asinl asinh asinhf asinhl atan atanf atanl atan2
            atan2f atan2l atanh atanhf atanhl cbrt cbrtf cbrtl ceil ceilf ceill copysign copysignf copysignl cos
            cosf cosl cosh coshf coshl erf erff erfl erfc erfcf erfcl exp expf expl exp2 exp2f exp2l expm1
            expm1f expm1l fabs fabsf fabsl fdim fdimf fdiml floor floorf floorl fma fmaf fmal fmax fmaxf fmaxl
            fmin fminf fminl fmod fmodf fmodl frexp frexpf frexpl hypot hypotf hypotl ilogb ilogbf ilogbl ldexp
            ldexpf ldexpl lgamma lgammaf lgammal llrint llrintf llrintl llround llroundf llroundl log logf logl
            log10 log10f log10l log1p log1pf log1pl log2 log2f log2l logb logbf logbl lrint lrintf lrintl lround
            lroundf lroundl modf modff modfl nan nanf nanl nearbyint nearbyintf nearbyintl nextafter nextafterf
            nextafterl nexttoward nexttowardf nexttowardl pow powf powl remainder remainderf remainderl remquo
            remquof remquol rint rintf rintl round roundf roundl scalbln scalblnf scalblnl scalbn scalbnf
            scalbnl sin sinf sinl sinh sinhf sinhl sqrt sqrtf sqrtl tan tanf tanl tanh tanhf tanhl tgamma
            tgammaf tgammal trunc truncf truncl
            // <math.h>, what is not C's own, and what compilers make of it
            __finite __finitef __fpclassify __fpclassifyf __isinf __isinff __isnan __isnanf __signbit __signbitf
            exp10 exp10f exp10l finite isinf isnan j0 j1 jn lgamma_r lgammaf_r sincos sincosf sincosl y0 y1 yn
            // <fenv.h>
            feclearexcept fegetround feraiseexcept fesetround fetestexcept
        }
        data { signgam stderr stdin stdout }
        others {
            // They would end the process.
            "__assert_fail" = crate::imports::assert_fail;
            "abort" = crate::imports::abort;
            // What newer headers make of the functions of these names; on older systems they are these.
            "__isoc23_sscanf" = __isoc99_sscanf;
            "__isoc23_strtoimax" = strtoimax;
            "__isoc23_strtol" = strtol;
            "__isoc23_strtoll" = strtoll;
            "__isoc23_strtoul" = strtoul;
            "__isoc23_strtoull" = strtoull;
            "__isoc23_strtoumax" = strtoumax;
            "__isoc23_vsscanf" = __isoc99_vsscanf;
        }
    }
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::ImportKind;

    use super::*;

    #[test]
    fn names_and_addresses_are_of_the_same_things() {
        let set = NamedSet::Libc;
        let symbols = set.symbols();
        let mut names: Vec<_> = symbols.iter().map(Symbol::name).collect();
        names.sort_unstable();
        assert!(names.iter().all(|name| NamedSet::of(name) == Some(set)));
        names.dedup();
        assert_eq!(names.len(), symbols.len(), "a name stands there twice");
        assert!(symbols.iter().all(|symbol| symbol.address() != 0));
        for name in ["qsort", "pthread_mutex_lock", "sleep"] {
            assert_eq!(NamedSet::of(name), Some(NamedSet::Libc), "{name}");
        }
        for name in [
            "system",
            "fork",
            "exit",
            "longjmp",
            "fopen",
            "dlopen",
            "pthread_create",
            "pthread_exit",
            "memcpy",
            "",
            "zzz",
        ] {
            assert_eq!(NamedSet::of(name), None, "{name}");
        }
    }

    #[test]
    fn an_address_is_that_of_its_name() {
        let symbols = NamedSet::Libc.symbols();
        let strtol = symbols.iter().find(|symbol| symbol.name() == "strtol").unwrap();
        assert!(strtol.has_kind(ImportKind::Function) && !strtol.has_kind(ImportKind::Variable));
        let strtol: *const () = std::ptr::with_exposed_provenance(strtol.address());
        type Strtol = unsafe extern "C" fn(*const u8, *mut *const u8, i32) -> std::ffi::c_long;
        // SAFETY: `strtol` of the C library has this type, and the text ends in a zero byte.
        let number = unsafe {
            std::mem::transmute::<*const (), Strtol>(strtol)(c"42".as_ptr().cast(), std::ptr::null_mut(), 10)
        };
        assert_eq!(number, 42);
    }
}

/* features: varargs, taken and given; snprintf and vsnprintf */
#include "corpus.h"
#include "host/host.h"
#include <stdarg.h>
#include <stdio.h>

NOINLINE static double mixed(int count, ...)
{
    va_list arguments, again;
    double sum = 0;

    va_start(arguments, count);
    va_copy(again, arguments);
    for (int i = 0; i < count; i++) {
        sum += va_arg(arguments, int);
        sum *= va_arg(arguments, double);
    }
    sum += va_arg(again, int);
    va_end(again);
    va_end(arguments);
    return sum;
}

__attribute__((format(printf, 2, 3))) static void say(struct world *w, const char *format, ...)
{
    char line[300];
    va_list arguments;

    va_start(arguments, format);
    put(w, (uint64_t)vsnprintf(line, sizeof line, format, arguments));
    va_end(arguments);
    put_text(w, line);
}

CASE(c_varargs)
{
    char line[100];

    put_double(w, mixed(5, (int)n, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5));
    for (size_t i = 0; i < words(n) && i < 40; i++) {
        uint64_t value = word(in, n, i);
        say(w, "%zu: %#llx %d %5.2f %-8s| %c %+ld %.3e", i, (unsigned long long)value, (int)value,
            (double)(value % 100000) / 7, i % 2 ? "odd" : "even", (char)('a' + value % 26), (long)value,
            (double)value);
        put(w, host_variadic(7, value, w->seed, (uint64_t)1, (uint64_t)2, (uint64_t)3, value, (uint64_t)n));
    }
    snprintf(line, sizeof line, "%.*s", (int)(n < 50 ? n : 50), (const char *)in);
    put_text(w, line);
}

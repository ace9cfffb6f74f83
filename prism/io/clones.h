#pragma once

// PRISM_CLONES compiles a function for several x86-64 levels and selects one when the program is loaded; PRISM_INLINE
// makes a template part of such a function. Clang 14 and programs with a sanitizer cannot select.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PRISM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PRISM_CLONES
#endif
// PRISM_HAS_LEVELS: functions may be compiled for a level of x86-64 and selected by the program itself.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PRISM_HAS_LEVELS
#endif
#define PRISM_INLINE [[gnu::always_inline]] inline

#pragma once

// Names for clang's thread-safety attributes (-Wthread-safety); nothing to other compilers.

#if defined(__clang__)
#define MR_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define MR_THREAD_ATTRIBUTE(x)
#endif

#define MR_CAPABILITY(name) MR_THREAD_ATTRIBUTE(capability(name))
#define MR_SCOPED_CAPABILITY MR_THREAD_ATTRIBUTE(scoped_lockable)
// A member read and written only with the mutex held.
#define MR_GUARDED_BY(mutex) MR_THREAD_ATTRIBUTE(guarded_by(mutex))
// A pointer member whose target is read and written only with the mutex held.
#define MR_PT_GUARDED_BY(mutex) MR_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// A function called only with the mutexes held.
#define MR_REQUIRES(...) MR_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
// A function never called with the mutexes held.
#define MR_EXCLUDES(...) MR_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define MR_ACQUIRE(...) MR_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define MR_TRY_ACQUIRE(...) MR_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define MR_RELEASE(...) MR_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
// For locking the analysis cannot follow; say why beside it.
#define MR_NO_THREAD_SAFETY_ANALYSIS MR_THREAD_ATTRIBUTE(no_thread_safety_analysis)

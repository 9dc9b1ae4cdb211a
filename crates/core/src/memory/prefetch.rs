//! Asks for memory before it is needed, so that a batch over a large table waits for the memory once and not per key.

#[inline]
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "a prefetch reads nothing and cannot fault")]
pub(crate) fn prefetch<T>(item: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast()) };
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch<T>(_item: &T) {}

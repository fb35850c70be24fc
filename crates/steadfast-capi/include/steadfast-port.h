/* Steadfast without an operating system: what the program gives to the library. steadfast.h has the
 * rest of the interface. The archives of `make archives` have these functions; a library for an
 * operating system has them not.
 *
 * One lock protects the whole library. While a task is inside a function, other tasks wait for it.
 */

/* cbindgen generates this file from the source: change the source, then run
 * STEADFAST_UPDATE=1 cargo test -p steadfast-capi --test header */

#ifndef STEADFAST_PORT_H
#define STEADFAST_PORT_H

#include <stddef.h>
#include <stdint.h>

// What the library gets from the program. Set `struct_size` and the memory, and whatever else
// there is; every other field may be 0 or NULL. The library calls these functions with its lock
// held, so they must not call the library (-SF_EDEADLK).
typedef struct sf_port {
    // `sizeof(sf_port)`.
    uint32_t struct_size;
    // Zero.
    uint32_t reserved;
    // Passed to every function.
    void *user;
    // Memory for everything that the library keeps, `arena_size` bytes. It is the library's until
    // `sf_stop`. `sf_memory` says how much is in use.
    void *arena;
    // Bytes of `arena`.
    size_t arena_size;
    // Instead of an arena: `size` bytes at a multiple of 8, or NULL.
    void *(*allocate)(void *user, size_t size);
    // Frees memory from `allocate`.
    void (*release)(void *user, void *memory);
    // Nanoseconds since 1970-01-01 UTC, for time stamps. NULL: all time stamps are 0.
    int64_t (*now_ns)(void *user);
    // Monotonic milliseconds since any fixed moment, for the transaction timer. NULL: the timer
    // sets no transaction points.
    uint64_t (*monotonic_ms)(void *user);
    // Fills `buffer` with random bytes, for the identity of a new volume. Returns 0 or a negative
    // error number. NULL: `sf_format_options.uuid` is used as it is.
    int (*entropy)(void *user, void *buffer, size_t length);
    // Takes the lock of the library: a recursive mutex, with priority inheritance if the system
    // has it. NULL: one task alone uses the library.
    void (*lock)(void *user);
    // Releases the lock once.
    void (*unlock)(void *user);
    // Called after an internal error, with a line about it. Must not return: reset the machine.
    // Acknowledged data is safe. NULL: the library loops for ever.
    void (*panic)(void *user, const char *text);
} sf_port;

// Use of the arena, in bytes.
typedef struct sf_memory_use {
    // The whole arena; 0 with `sf_port.allocate`.
    size_t size;
    // In use now.
    size_t used;
    // The most that was in use at once since `sf_start`.
    size_t peak;
    // The largest free block.
    size_t largest_free;
    // The largest sum of what was in use and a request that was refused; 0: none was. A larger
    // arena gets further, and may be asked for more then.
    size_t wanted;
} sf_memory_use;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Starts the library. Call it once, before every other function, while no other task uses the
// library. The description is copied. -SF_EBUSY: it is started already.
int sf_start(const struct sf_port *port);

// Gives the memory back to the program. Afterwards `sf_start` may be called again. -SF_EBUSY: a
// volume is open.
int sf_stop(void);

// Returns the use of memory.
int sf_memory(struct sf_memory_use *place);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STEADFAST_PORT_H */

// SPDX-License-Identifier: MIT OR Apache-2.0
/* The core's locks: kernel locks that know which entry holds them, so that a panic can release
 * them. Each has a lockdep class of its own; the core documents their order. */
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/slab.h>

#include "steadfast.h"

struct sf_mutex {
	struct mutex lock;
	struct sf_mutex *next; /* of the holder's list */
#ifdef CONFIG_LOCKDEP
	struct lock_class_key key;
#endif
};

struct sf_rwsem {
	struct rw_semaphore lock;
	struct sf_rwsem *next; /* of the writer's list */
#ifdef CONFIG_LOCKDEP
	struct lock_class_key key;
#endif
};

/* The core cannot report that there is no memory for a lock. These are a few dozen bytes. */
static void *new_lock(size_t size)
{
	return kzalloc(size, GFP_NOFS | __GFP_NOFAIL);
}

void *sfk_shim_mutex_new(void)
{
	struct sf_mutex *mutex = new_lock(sizeof(*mutex));

	mutex_init(&mutex->lock);
#ifdef CONFIG_LOCKDEP
	lockdep_register_key(&mutex->key);
	lockdep_set_class(&mutex->lock, &mutex->key);
#endif
	return mutex;
}

void sfk_shim_mutex_free(void *lock)
{
	struct sf_mutex *mutex = lock;

	mutex_destroy(&mutex->lock);
#ifdef CONFIG_LOCKDEP
	lockdep_unregister_key(&mutex->key);
#endif
	kfree(mutex);
}

static void hold(struct sf_mutex *mutex)
{
	struct sf_entry *entry = sf_entry_here();

	mutex->next = entry->mutexes;
	entry->mutexes = mutex;
	sf_check_broken();
}

void sfk_shim_mutex_lock(void *lock)
{
	struct sf_mutex *mutex = lock;

	if (!mutex_trylock(&mutex->lock)) {
		sf_stack_pause();
		mutex_lock(&mutex->lock);
		sf_stack_resume();
	}
	hold(mutex);
}

bool sfk_shim_mutex_try(void *lock)
{
	struct sf_mutex *mutex = lock;

	if (!mutex_trylock(&mutex->lock))
		return false;
	hold(mutex);
	return true;
}

void sfk_shim_mutex_unlock(void *lock)
{
	struct sf_mutex *mutex = lock;
	struct sf_mutex **at = &sf_entry_here()->mutexes;

	/* Locks are released nearly in the order of their taking, so the search is short. */
	while (*at && *at != mutex)
		at = &(*at)->next;
	if (*at)
		*at = mutex->next;
	mutex_unlock(&mutex->lock);
}

bool sfk_shim_mutex_held(void *lock)
{
	return mutex_is_locked(&((struct sf_mutex *)lock)->lock);
}

void *sfk_shim_rwsem_new(void)
{
	struct sf_rwsem *rwsem = new_lock(sizeof(*rwsem));

	init_rwsem(&rwsem->lock);
#ifdef CONFIG_LOCKDEP
	lockdep_register_key(&rwsem->key);
	lockdep_set_class(&rwsem->lock, &rwsem->key);
#endif
	return rwsem;
}

void sfk_shim_rwsem_free(void *lock)
{
	struct sf_rwsem *rwsem = lock;

#ifdef CONFIG_LOCKDEP
	lockdep_unregister_key(&rwsem->key);
#endif
	kfree(rwsem);
}

static void hold_read(struct sf_rwsem *rwsem)
{
	struct sf_entry *entry = sf_entry_here();

	if (!WARN_ON_ONCE(entry->reads == SF_READS))
		entry->read[entry->reads++] = rwsem;
	sf_check_broken();
}

static void hold_write(struct sf_rwsem *rwsem)
{
	struct sf_entry *entry = sf_entry_here();

	rwsem->next = entry->writes;
	entry->writes = rwsem;
	sf_check_broken();
}

void sfk_shim_rwsem_read(void *lock)
{
	struct sf_rwsem *rwsem = lock;

	if (!down_read_trylock(&rwsem->lock)) {
		sf_stack_pause();
		down_read(&rwsem->lock);
		sf_stack_resume();
	}
	hold_read(rwsem);
}

bool sfk_shim_rwsem_try_read(void *lock)
{
	struct sf_rwsem *rwsem = lock;

	if (!down_read_trylock(&rwsem->lock))
		return false;
	hold_read(rwsem);
	return true;
}

void sfk_shim_rwsem_read_done(void *lock)
{
	struct sf_entry *entry = sf_entry_here();
	unsigned int i;

	for (i = entry->reads; i > 0; i--) {
		if (entry->read[i - 1] == lock) {
			entry->read[i - 1] = entry->read[--entry->reads];
			break;
		}
	}
	up_read(&((struct sf_rwsem *)lock)->lock);
}

void sfk_shim_rwsem_write(void *lock)
{
	struct sf_rwsem *rwsem = lock;

	if (!down_write_trylock(&rwsem->lock)) {
		sf_stack_pause();
		down_write(&rwsem->lock);
		sf_stack_resume();
	}
	hold_write(rwsem);
}

bool sfk_shim_rwsem_try_write(void *lock)
{
	struct sf_rwsem *rwsem = lock;

	if (!down_write_trylock(&rwsem->lock))
		return false;
	hold_write(rwsem);
	return true;
}

void sfk_shim_rwsem_write_done(void *lock)
{
	struct sf_rwsem *rwsem = lock;
	struct sf_rwsem **at = &sf_entry_here()->writes;

	while (*at && *at != rwsem)
		at = &(*at)->next;
	if (*at)
		*at = rwsem->next;
	up_write(&rwsem->lock);
}

bool sfk_shim_rwsem_held(void *lock)
{
	return rwsem_is_locked(&((struct sf_rwsem *)lock)->lock);
}

/* Releases what an entry holds that leaves the core by a panic. */
void sf_locks_release(struct sf_entry *entry)
{
	while (entry->mutexes) {
		struct sf_mutex *mutex = entry->mutexes;

		entry->mutexes = mutex->next;
		mutex_unlock(&mutex->lock);
	}
	while (entry->writes) {
		struct sf_rwsem *rwsem = entry->writes;

		entry->writes = rwsem->next;
		up_write(&rwsem->lock);
	}
	while (entry->reads)
		up_read(&entry->read[--entry->reads]->lock);
}

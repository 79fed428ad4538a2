/* uids: what events are about. */
#include "cm.h"

enum { BUCKETS = 4096 };

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static struct named *buckets[BUCKETS];
static uint64_t last_uid;

static struct named **bucket(uint64_t uid)
{
	return &buckets[uid % BUCKETS];
}

void name_enter(struct named *named, enum kind kind)
{
	struct named **head;

	pthread_cond_init(&named->done, NULL);
	named->kind = kind;
	pthread_mutex_lock(&names_lock);
	named->uid = ++last_uid;
	head = bucket(named->uid);
	named->next = *head;
	*head = named;
	pthread_mutex_unlock(&names_lock);
}

struct named *name_find(uint64_t uid)
{
	struct named *n;

	pthread_mutex_lock(&names_lock);
	for (n = *bucket(uid); n && n->uid != uid; n = n->next)
		;
	pthread_mutex_unlock(&names_lock);
	return n;
}

void name_complete(struct named *named)
{
	pthread_mutex_lock(&names_lock);
	named->completed++;
	pthread_cond_broadcast(&named->done);
	pthread_mutex_unlock(&names_lock);
}

void name_wait(struct named *named, uint32_t reported)
{
	int before = keep_going();

	pthread_mutex_lock(&names_lock);
	while ((int32_t)(reported - named->completed) > 0)
		pthread_cond_wait(&named->done, &names_lock);
	pthread_mutex_unlock(&names_lock);
	may_cancel(before);
}

void name_remove(struct named *named)
{
	struct named **at;

	pthread_mutex_lock(&names_lock);
	for (at = bucket(named->uid); *at && *at != named; at = &(*at)->next)
		;
	if (*at)
		*at = named->next;
	pthread_mutex_unlock(&names_lock);
	pthread_cond_destroy(&named->done);
}

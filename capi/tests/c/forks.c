// Processes that fork while other threads of theirs make the library's first calls.
#define _GNU_SOURCE

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

// Processes in which no call was made before, threads of each, and how often each forks.
#define ROUNDS 40
#define THREADS 2
#define CHILDREN 6

// After so long a call has hung.
#define PATIENCE_S 30

static pthread_barrier_t begun;

// Computes on the CPU of this process; tells whether the sum is right.
static int compute(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = NULL;
    OK(ANeuralNetworksCompilation_create(model, &compilation));
    OK(ANeuralNetworksCompilation_finish(compilation));
    ANeuralNetworksExecution* execution = NULL;
    OK(ANeuralNetworksExecution_create(compilation, &execution));
    float sum[4] = {0};
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, sizeof ONES));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, sizeof sum));
    OK(ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    return failures == 0 && sum[3] == 2;
}

static void* first_calls(void* is_right) {
    pthread_barrier_wait(&begun);
    *(int*)is_right = compute();
    return NULL;
}

// One process: it forks as often as it can while its threads make their first calls. Tells whether nobody hung
// and all computed.
static int run_round(int round) {
    pthread_t threads[THREADS];
    int are_right[THREADS] = {0};
    pid_t children[CHILDREN];
    int is_right = 1;
    pthread_barrier_init(&begun, NULL, THREADS + 1);
    for (int thread = 0; thread < THREADS; thread++) {
        if (pthread_create(&threads[thread], NULL, first_calls, &are_right[thread]) != 0) {
            return 0;
        }
    }
    pthread_barrier_wait(&begun);
    // At another moment in each round.
    for (volatile int wait = 0; wait < round * 1000; wait++) {
    }
    for (int child = 0; child < CHILDREN; child++) {
        children[child] = fork();
        if (children[child] == 0) {
            alarm(PATIENCE_S);
            _exit(compute() ? 0 : 1);
        }
    }
    for (int child = 0; child < CHILDREN; child++) {
        int status = 0;
        if (children[child] < 0 || waitpid(children[child], &status, 0) < 0 || status != 0) {
            fprintf(stderr, "round %d, child %d: %s\n", round, child,
                    WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "a call has hung" : "a call has failed");
            is_right = 0;
        }
    }
    for (int thread = 0; thread < THREADS; thread++) {
        is_right &= pthread_join(threads[thread], NULL) == 0 && are_right[thread];
    }
    return is_right;
}

int main(void) {
    for (int round = 0; round < ROUNDS; round++) {
        pid_t process = fork();
        int status = 0;
        if (process == 0) {
            alarm(2 * PATIENCE_S);
            _exit(run_round(round) ? 0 : 1);
        }
        if (process < 0 || waitpid(process, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "round %d ended with status %d\n", round, status);
            return 1;
        }
    }
    return 0;
}

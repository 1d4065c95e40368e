// Reusable executions computed by burst again and again: what a burst knows of one run must not show in another.
#define _GNU_SOURCE

#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

enum { RUNS = 5 };

typedef struct {
    ANeuralNetworksModel* model;
    ANeuralNetworksCompilation* compilation;
    ANeuralNetworksBurst* burst;
} Stream;

static Stream stream_of(ANeuralNetworksModel* model) {
    Stream stream = {model, finished(new_compilation(model)), NULL};
    OK(ANeuralNetworksBurst_create(stream.compilation, &stream.burst));
    return stream;
}

static void end(Stream stream) {
    ANeuralNetworksBurst_free(stream.burst);
    ANeuralNetworksCompilation_free(stream.compilation);
    ANeuralNetworksModel_free(stream.model);
}

static ANeuralNetworksExecution* reusable(Stream stream) {
    ANeuralNetworksExecution* execution = new_execution(stream.compilation);
    OK(ANeuralNetworksExecution_setReusable(execution, true));
    return execution;
}

// One that reads four floats and writes four.
static ANeuralNetworksExecution* of_buffers(Stream stream, const float* from, float* to) {
    ANeuralNetworksExecution* execution = reusable(stream);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, from, 16));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, to, 16));
    return execution;
}

static void fill(float* values, float value) {
    for (int at = 0; at < 4; at++) {
        values[at] = value + (float)at;
    }
}

static bool is_filled(const float* values, float value) {
    for (int at = 0; at < 4; at++) {
        if (values[at] != value + (float)at) {
            return false;
        }
    }
    return true;
}

// Executions, bursts and ways take turns over values that change.
static void buffers(void) {
    Stream stream = stream_of(add_model());
    ANeuralNetworksBurst* other = NULL;
    OK(ANeuralNetworksBurst_create(stream.compilation, &other));
    float from[2][4], to[2][4];
    ANeuralNetworksExecution* executions[2] = {of_buffers(stream, from[0], to[0]), of_buffers(stream, from[1], to[1])};
    for (int run = 0; run < 8 * RUNS; run++) {
        int at = run / 3 % 2;
        fill(from[at], (float)(10 * run));
        memset(to, 0, sizeof to);
        if (run % 11 == 10) {
            OK(ANeuralNetworksExecution_compute(executions[at]));
        } else {
            OK(ANeuralNetworksExecution_burstCompute(executions[at], run % 7 < 4 ? stream.burst : other));
        }
        EXPECT_TRUE(is_filled(to[at], (float)(10 * run + 1)));
        EXPECT_TRUE(to[1 - at][0] == 0);
    }
    ANeuralNetworksExecution_free(executions[0]);
    ANeuralNetworksExecution_free(executions[1]);
    ANeuralNetworksBurst_free(other);
    end(stream);
}

// The output lies where the input does, so each run goes on from the one before.
static void in_place(void) {
    Stream stream = stream_of(add_model());
    float values[4];
    fill(values, 0);
    ANeuralNetworksExecution* execution = of_buffers(stream, values, values);
    for (int run = 1; run <= RUNS; run++) {
        OK(ANeuralNetworksExecution_burstCompute(execution, stream.burst));
        EXPECT_TRUE(is_filled(values, (float)run));
    }
    ANeuralNetworksExecution_free(execution);
    end(stream);
}

// Measured, with limits of time that are met, arguments in a memory.
static void memories(void) {
    Stream stream = stream_of(add_model());
    int fd = memfd_create("values", MFD_CLOEXEC);
    EXPECT_TRUE(fd >= 0 && ftruncate(fd, 64) == 0);
    float* values = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_TRUE(values != MAP_FAILED);
    ANeuralNetworksMemory* memory = NULL;
    OK(ANeuralNetworksMemory_createFromFd(64, PROT_READ | PROT_WRITE, fd, 0, &memory));
    for (int limited = 0; limited < 2; limited++) {
        ANeuralNetworksExecution* execution = reusable(stream);
        OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 16));
        OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 32, 16));
        OK(ANeuralNetworksExecution_setMeasureTiming(execution, true));
        if (limited) {
            OK(ANeuralNetworksExecution_setTimeout(execution, UINT64_C(60000000000)));
        }
        for (int run = 0; run < RUNS; run++) {
            uint64_t hardware = 0;
            fill(values, (float)(100 * run));
            OK(ANeuralNetworksExecution_burstCompute(execution, stream.burst));
            EXPECT_TRUE(is_filled(values + 8, (float)(100 * run + 1)));
            OK(ANeuralNetworksExecution_getDuration(execution, ANEURALNETWORKS_DURATION_ON_HARDWARE, &hardware));
            EXPECT_TRUE(hardware != UINT64_MAX);
        }
        ANeuralNetworksExecution_free(execution);
    }
    ANeuralNetworksMemory_free(memory);
    munmap(values, 64);
    close(fd);
    end(stream);
}

// y = RELU(x) of two dimensions that come with the input.
static ANeuralNetworksModel* open_relu(void) {
    const uint32_t unknown[2] = {0, 0};
    ANeuralNetworksModel* model = new_model();
    uint32_t input = 0, output = 1;
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 2, unknown, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 2, unknown, 0, 0)));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return model;
}

static bool has_dimensions(ANeuralNetworksExecution* execution, const uint32_t* wanted) {
    uint32_t rank = 0, found[2] = {0};
    OK(ANeuralNetworksExecution_getOutputOperandRank(execution, 0, &rank));
    OK(ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0, found));
    return rank == 2 && found[0] == wanted[0] && found[1] == wanted[1];
}

// More shapes than a burst keeps, two of them with as many bytes, take turns.
static void shapes(void) {
    Stream stream = stream_of(open_relu());
    enum { SHAPES = 7 };
    static const uint32_t dimensions[SHAPES][2] = {{2, 3}, {3, 2}, {1, 4}, {5, 1}, {2, 4}, {3, 3}, {10, 10}};
    static float from[SHAPES][100], to[SHAPES][100];
    ANeuralNetworksExecution* executions[SHAPES];
    for (int at = 0; at < SHAPES; at++) {
        ANeuralNetworksOperandType type = type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 2, dimensions[at], 0, 0);
        size_t bytes = dimensions[at][0] * dimensions[at][1] * sizeof(float);
        executions[at] = reusable(stream);
        OK(ANeuralNetworksExecution_setInput(executions[at], 0, &type, from[at], bytes));
        OK(ANeuralNetworksExecution_setOutput(executions[at], 0, NULL, to[at], bytes));
    }
    for (int run = 0; run < 6 * SHAPES; run++) {
        // Two by turns, then all.
        int at = run < 2 * SHAPES ? run % 2 : run % SHAPES;
        from[at][0] = (float)run + 1;
        from[at][1] = -1;
        to[at][0] = to[at][1] = 7;
        OK(ANeuralNetworksExecution_burstCompute(executions[at], stream.burst));
        EXPECT_TRUE(to[at][0] == (float)run + 1 && to[at][1] == 0);
        EXPECT_TRUE(has_dimensions(executions[at], dimensions[at]));
    }
    for (int at = 0; at < SHAPES; at++) {
        ANeuralNetworksExecution_free(executions[at]);
    }
    end(stream);
}

// An output for which there is no room is told of each time, and others go on.
static void too_small(void) {
    Stream stream = stream_of(open_relu());
    const uint32_t dimensions[2] = {2, 3};
    ANeuralNetworksOperandType type = type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 2, dimensions, 0, 0);
    float from[6] = {1, 2, 3, 4, 5, 6}, to[6] = {0}, room[3] = {0};
    ANeuralNetworksExecution* small = reusable(stream);
    OK(ANeuralNetworksExecution_setInput(small, 0, &type, from, sizeof from));
    OK(ANeuralNetworksExecution_setOutput(small, 0, NULL, room, sizeof room));
    ANeuralNetworksExecution* fitting = reusable(stream);
    OK(ANeuralNetworksExecution_setInput(fitting, 0, &type, from, sizeof from));
    OK(ANeuralNetworksExecution_setOutput(fitting, 0, NULL, to, sizeof to));
    for (int run = 0; run < RUNS; run++) {
        uint32_t found[2] = {0};
        EXPECT(OUTPUT_INSUFFICIENT_SIZE, ANeuralNetworksExecution_burstCompute(small, stream.burst));
        EXPECT(OUTPUT_INSUFFICIENT_SIZE, ANeuralNetworksExecution_getOutputOperandDimensions(small, 0, found));
        EXPECT_TRUE(found[0] == 2 && found[1] == 3);
        from[0] = (float)run;
        OK(ANeuralNetworksExecution_burstCompute(fitting, stream.burst));
        EXPECT_TRUE(memcmp(from, to, sizeof from) == 0 && has_dimensions(fitting, dimensions));
    }
    ANeuralNetworksExecution_free(small);
    ANeuralNetworksExecution_free(fitting);
    end(stream);
}

int main(int count, char** names) {
    static const Case cases[] = {
        {"buffers", buffers}, {"in_place", in_place},   {"memories", memories},
        {"shapes", shapes},   {"too_small", too_small},
    };
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}

// The cases N040 to N074 of the NDK's own tests: executions, events, bursts and memories; and what they must do right.
#define _GNU_SOURCE

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

#define TENSOR ANEURALNETWORKS_TENSOR_FLOAT32

static ANeuralNetworksMemory* new_memory(size_t size, float** mapped) {
    ANeuralNetworksMemory* memory = NULL;
    int fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_TRUE(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    OK(ANeuralNetworksMemory_createFromFd(size, PROT_READ | PROT_WRITE, fd, 0, &memory));
    if (mapped) {
        *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_TRUE(*mapped != MAP_FAILED);
    }
    close(fd);
    return memory;
}

// An execution of the model of add_model, ready to start.
static ANeuralNetworksExecution* ready_execution(ANeuralNetworksCompilation* compilation, const float* x, float* sum) {
    ANeuralNetworksExecution* execution = new_execution(compilation);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, x, 4 * sizeof *x));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 4 * sizeof *sum));
    return execution;
}

// A model and what it is compiled to, for one named device.
typedef struct {
    ANeuralNetworksModel* model;
    ANeuralNetworksCompilation* compilation;
} Compiled;

static Compiled compiled(ANeuralNetworksModel* model) {
    Compiled compiled = {model, finished(new_compilation(model))};
    return compiled;
}

static void free_compiled(Compiled compiled) {
    ANeuralNetworksCompilation_free(compiled.compilation);
    ANeuralNetworksModel_free(compiled.model);
}

// sum = x + x of floats whose dimensions come with the request.
static ANeuralNetworksModel* open_add(void) {
    static const uint32_t open[2] = {0, 0};
    ANeuralNetworksModel* model = new_model();
    ANeuralNetworksOperandType floats = type_of(TENSOR, 2, open, 0, 0);
    int32_t none = ANEURALNETWORKS_FUSED_NONE;
    uint32_t inputs[3] = {0, 1, 2}, output = 3;
    OK(add_operand(model, floats));
    OK(add_operand(model, floats));
    OK(add_operand(model, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(model, floats));
    OK(ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, inputs, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return model;
}

static ANeuralNetworksMemory* device_memory(Compiled add, int is_input);

static int is_two(const float* values) {
    return values[0] == 2 && values[1] == 2 && values[2] == 2 && values[3] == 2;
}

// An argument that comes with a type says at least as much of its dimensions as the model does.
static void n040_less_specific(void) {
    const uint32_t open[1] = {0}, six[2] = {0, 6}, open_six[2] = {0, 0}, one_by_six[2] = {1, 6};
    ANeuralNetworksOperandType any_rank = type_of(TENSOR, 0, NULL, 0, 0), any_length = type_of(TENSOR, 1, open, 0, 0);
    ANeuralNetworksOperandType columns = type_of(TENSOR, 2, six, 0, 0), nothing = type_of(TENSOR, 2, open_six, 0, 0);
    ANeuralNetworksOperandType row = type_of(TENSOR, 2, one_by_six, 0, 0);
    float values[6] = {1, 1, 1, 1, 1, 1}, sum[6];
    Compiled add = compiled(add_model());
    ANeuralNetworksMemory *memory = new_memory(24, NULL), *described[2] = {device_memory(add, 1), device_memory(add, 0)};
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    const ANeuralNetworksOperandType* vague[2] = {&any_rank, &any_length};
    for (int at = 0; at < 2; at++) {
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, vague[at], values, 16));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, vague[at], NULL, 0));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, vague[at], memory, 0, 16));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, vague[at], described[0], 0, 0));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, vague[at], sum, 16));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, vague[at], memory, 0, 16));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, vague[at], described[1], 0, 0));
    }
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);

    // What the model leaves open, outputs may leave open too, and inputs that are omitted.
    add = compiled(open_add());
    execution = new_execution(add.compilation);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &any_rank, values, 24));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &columns, values, 24));
    OK(ANeuralNetworksExecution_setInput(execution, 0, &row, values, 24));
    OK(ANeuralNetworksExecution_setInput(execution, 1, &row, values, 24));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, &any_rank, sum, 24));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, &nothing, sum, 24));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(sum) && sum[5] == 2);
    ANeuralNetworksExecution_free(execution);
    execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setOutput(execution, 0, &columns, sum, 24));
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);
    for (int at = 0; at < 2; at++) {
        ANeuralNetworksMemory_free(described[at]);
    }
    ANeuralNetworksMemory_free(memory);
}

static void n040(void) {
    n040_less_specific();
    Compiled add = compiled(add_model());
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    float values[5] = {1, 1, 1, 1, 1}, sum[5] = {0};
    const uint32_t five[1] = {5};
    ANeuralNetworksOperandType no_list = type_of(TENSOR, 1, NULL, 0, 0);
    ANeuralNetworksOperandType no_count = type_of(TENSOR, 0, FOUR, 0, 0);
    ANeuralNetworksOperandType longer = type_of(TENSOR, 1, five, 0, 0);
    ANeuralNetworksOperandType fitting = type_of(TENSOR, 1, FOUR, 0, 0);
    ANeuralNetworksOperandType other = type_of(ANEURALNETWORKS_TENSOR_INT32, 1, FOUR, 0, 0);

    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, NULL, values, 20));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, NULL, values, 12));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 999, NULL, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, -1, NULL, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &no_list, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &no_count, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &longer, values, 20));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &other, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 20));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 999, NULL, sum, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, -1, NULL, sum, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, &no_list, sum, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, &longer, sum, 20));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_compute(execution));
    OK(ANeuralNetworksExecution_setInput(execution, 0, &fitting, values, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setInput(execution, 0, &fitting, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_compute(execution));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_enableInputAndOutputPadding(execution, true));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(sum) && sum[4] == 0);
    ANeuralNetworksExecution_free(execution);

    execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_enableInputAndOutputPadding(execution, true));
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, values, 20));
    // Lengths that no buffer has.
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, SIZE_MAX));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, (size_t)PTRDIFF_MAX + 1));
    memset(sum, 0, sizeof sum);
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 20));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(sum) && sum[4] == 0);
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);
}

static void n041(void) {
    Compiled add = compiled(add_model());
    float* shared = NULL;
    ANeuralNetworksMemory* memory = new_memory(36, &shared);
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 37, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 21, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, (size_t)-8, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 20));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 1, NULL, memory, 0, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 37, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 21, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0, 20));
    OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 16));
    OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 20, 16));
    memcpy(shared, ONES, sizeof ONES);
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(shared + 5));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemory_free(memory);
    free_compiled(add);
}

static void n042(void) {
    Compiled add = compiled(open_add());
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    const uint32_t large[2] = {66000, 66000}, row[2] = {1, 65536}, column[2] = {65536, 1};
    ANeuralNetworksOperandType overflowing = type_of(TENSOR, 2, large, 0, 0);
    ANeuralNetworksOperandType wide = type_of(TENSOR, 2, row, 0, 0), high = type_of(TENSOR, 2, column, 0, 0);
    float* values = calloc(65536, sizeof *values);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, &overflowing, values, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, NULL, values, 16));
    OK(ANeuralNetworksExecution_setInput(execution, 0, &wide, values, 4 * 65536));
    OK(ANeuralNetworksExecution_setInput(execution, 1, &high, values, 4 * 65536));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, &overflowing, values, 16));
    float sum[4];
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, sizeof sum));
    EXPECT_TRUE(ANeuralNetworksExecution_compute(execution) != ANEURALNETWORKS_NO_ERROR);
    ANeuralNetworksExecution_free(execution);
    free(values);
    free_compiled(add);
}

// Memory of the compilation's device for its input or output.
static ANeuralNetworksMemory* device_memory(Compiled add, int is_input) {
    ANeuralNetworksMemoryDesc* desc = NULL;
    ANeuralNetworksMemory* memory = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    if (is_input) {
        OK(ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    } else {
        OK(ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 0, 1));
    }
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    OK(ANeuralNetworksMemory_createFromDesc(desc, &memory));
    ANeuralNetworksMemoryDesc_free(desc);
    return memory;
}

// Device memory of dimensions that the model leaves open: what it was described for is held to when it is set, what its
// value has when it is read.
static void n043_shapes(void) {
    Compiled add = compiled(open_add());
    ANeuralNetworksMemoryDesc* desc = NULL;
    ANeuralNetworksMemory* memory = NULL;
    const uint32_t six[2] = {0, 6}, one_by_six[2] = {1, 6}, two_by_six[2] = {2, 6}, two_by_three[2] = {2, 3};
    ANeuralNetworksOperandType row = type_of(TENSOR, 2, one_by_six, 0, 0), rows = type_of(TENSOR, 2, two_by_six, 0, 0);
    ANeuralNetworksOperandType other = type_of(TENSOR, 2, two_by_three, 0, 0);
    float values[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, sum[12];
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_setDimensions(desc, 2, six));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    OK(ANeuralNetworksMemory_createFromDesc(desc, &memory));
    ANeuralNetworksMemoryDesc_free(desc);

    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setInput(execution, 0, &row, values, 24));
    OK(ANeuralNetworksExecution_setInput(execution, 1, &row, values, 24));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, &other, memory, 0, 0));
    OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0, 0));
    OK(ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);

    // Its value is of one row now.
    execution = new_execution(add.compilation);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, &other, memory, 0, 0));
    OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, &rows, memory, 0, 0));
    OK(ANeuralNetworksExecution_setInput(execution, 1, &rows, values, 48));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, &rows, sum, 48));
    EXPECT(OP_FAILED, ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);

    execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 0));
    OK(ANeuralNetworksExecution_setInput(execution, 1, &row, values, 24));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, &row, sum, 24));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(sum[0] == 3 && sum[5] == 3);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemory_free(memory);
    free_compiled(add);
}

static void n043(void) {
    n043_shapes();
    Compiled add = compiled(add_model());
    ANeuralNetworksMemory* input = device_memory(add, 1);
    ANeuralNetworksMemory* output = device_memory(add, 0);
    float* shared = NULL;
    ANeuralNetworksMemory* plain = new_memory(16, &shared);
    const uint32_t five[1] = {5};
    ANeuralNetworksOperandType longer = type_of(TENSOR, 1, five, 0, 0);
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, input, 1, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, input, 0, 16));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, output, 0, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInputFromMemory(execution, 0, &longer, input, 0, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, input, 0, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, output, 4, 0));
    OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, input, 0, 0));
    OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, output, 0, 0));
    EXPECT(OP_FAILED, ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);

    memcpy(shared, ONES, sizeof ONES);
    OK(ANeuralNetworksMemory_copy(plain, input));
    execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, input, 0, 0));
    OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, output, 0, 0));
    OK(ANeuralNetworksExecution_compute(execution));
    OK(ANeuralNetworksMemory_copy(output, plain));
    EXPECT_TRUE(is_two(shared));
    ANeuralNetworksExecution_free(execution);

    ANeuralNetworksModel* model = unfinished_add();
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandValueFromMemory(model, 1, input, 0, 0));
    ANeuralNetworksModel_free(model);
    ANeuralNetworksMemory_free(input);
    ANeuralNetworksMemory_free(output);
    ANeuralNetworksMemory_free(plain);
    free_compiled(add);
}

// Measuring and limits need exactly one named device.
static void expect_unmeasured(ANeuralNetworksCompilation* compilation) {
    ANeuralNetworksExecution* execution = new_execution(finished(compilation));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setMeasureTiming(execution, false));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setMeasureTiming(execution, true));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setTimeout(execution, 0));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setTimeout(execution, 1000));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
}

static void n044(void) {
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = NULL;
    ANeuralNetworksDevice* cpu = NULL;
    uint32_t count = 0;
    OK(ANeuralNetworksCompilation_create(model, &compilation));
    expect_unmeasured(compilation);
    OK(ANeuralNetworks_getDeviceCount(&count));
    OK(ANeuralNetworks_getDevice(count - 1, &cpu));
    const ANeuralNetworksDevice* two[2] = {test_device(), cpu};
    OK(ANeuralNetworksCompilation_createForDevices(model, two, 2, &compilation));
    expect_unmeasured(compilation);
    ANeuralNetworksModel_free(model);
}

// Nothing of an execution can be set any more.
static void expect_closed(ANeuralNetworksExecution* execution, ANeuralNetworksBurst* burst,
                          ANeuralNetworksMemory* memory) {
    float values[4];
    ANeuralNetworksEvent* event = NULL;
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setLoopTimeout(execution, 1));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setTimeout(execution, 1));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setMeasureTiming(execution, true));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setReusable(execution, true));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_enableInputAndOutputPadding(execution, true));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setInput(execution, 0, NULL, values, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setOutput(execution, 0, NULL, values, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0, 16));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_compute(execution));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_burstCompute(execution, burst));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_startCompute(execution, &event));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, &event));
    EXPECT_TRUE(event == NULL);
}

static void n045(void) {
    Compiled add = compiled(add_model());
    ANeuralNetworksBurst* burst = NULL;
    ANeuralNetworksMemory* memory = new_memory(16, NULL);
    ANeuralNetworksEvent* event = NULL;
    float sum[4];
    OK(ANeuralNetworksBurst_create(add.compilation, &burst));

    ANeuralNetworksExecution* execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_compute(execution));
    expect_closed(execution, burst, memory);
    ANeuralNetworksExecution_free(execution);

    execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_burstCompute(execution, burst));
    expect_closed(execution, burst, memory);
    ANeuralNetworksExecution_free(execution);

    execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_startCompute(execution, &event));
    expect_closed(execution, burst, memory);
    OK(ANeuralNetworksEvent_wait(event));
    OK(ANeuralNetworksEvent_wait(event));
    expect_closed(execution, burst, memory);
    ANeuralNetworksEvent_free(event);
    ANeuralNetworksExecution_free(execution);

    // A fence that nobody has signalled yet keeps it from ending.
    int gate = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const uint64_t one = 1;
    ANeuralNetworksEvent* opened = NULL;
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(gate, &opened));
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        const ANeuralNetworksEvent* dependencies[1] = {opened};
        execution = new_execution(add.compilation);
        OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
        if (in_memory) {
            OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 0, 16));
        } else {
            OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
        }
        OK(ANeuralNetworksExecution_startComputeWithDependencies(execution, dependencies, 1, 0, &event));
        expect_closed(execution, burst, memory);
        ANeuralNetworksExecution_free(execution);
        if (in_memory) {
            EXPECT_TRUE(write(gate, &one, sizeof one) == sizeof one);
        } else {
            ANeuralNetworksEvent* second_gate = NULL;
            EXPECT_TRUE(write(gate, &one, sizeof one) == sizeof one);
            OK(ANeuralNetworksEvent_wait(event));
            ANeuralNetworksEvent_free(opened);
            close(gate);
            gate = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
            OK(ANeuralNetworksEvent_createFromSyncFenceFd(gate, &second_gate));
            opened = second_gate;
        }
        OK(ANeuralNetworksEvent_wait(event));
        expect_closed(execution, burst, memory);
        ANeuralNetworksEvent_free(event);
        ANeuralNetworksExecution_free(execution);
    }
    ANeuralNetworksEvent_free(opened);
    close(gate);
    ANeuralNetworksMemory_free(memory);
    ANeuralNetworksBurst_free(burst);
    free_compiled(add);
}

static void n046(void) {
    Compiled add = compiled(add_model());
    float sum[4];
    uint64_t duration = 0;
    ANeuralNetworksExecution* execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_setMeasureTiming(execution, true));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_getDuration(execution, 0, &duration));
    EXPECT_TRUE(duration == UINT64_MAX);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_getDuration(execution, -1, &duration));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_getDuration(execution, -1, &duration));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_getDuration(execution, 4, &duration));
    uint64_t on_hardware = 0, in_driver = 0;
    OK(ANeuralNetworksExecution_getDuration(execution, ANEURALNETWORKS_DURATION_ON_HARDWARE, &on_hardware));
    OK(ANeuralNetworksExecution_getDuration(execution, ANEURALNETWORKS_DURATION_IN_DRIVER, &in_driver));
    OK(ANeuralNetworksExecution_getDuration(execution, ANEURALNETWORKS_FENCED_DURATION_ON_HARDWARE, &duration));
    OK(ANeuralNetworksExecution_getDuration(execution, ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER, &duration));
    EXPECT_TRUE(in_driver != UINT64_MAX && in_driver % 1000 == 0 && in_driver < UINT64_C(60000000000));
    EXPECT_TRUE(on_hardware == UINT64_MAX || on_hardware <= in_driver);
    ANeuralNetworksExecution_free(execution);

    execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_getDuration(execution, 0, &duration));
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);
}

static void n047(void) {
    Compiled add = compiled(open_add());
    float values[6] = {1, 1, 1, 1, 1, 1}, sum[6];
    const uint32_t dimensions[2] = {2, 3};
    ANeuralNetworksOperandType type = type_of(TENSOR, 2, dimensions, 0, 0);
    uint32_t rank = 0, found[2] = {0, 0};
    for (size_t room = 5; room <= 6; room++) {
        ANeuralNetworksExecution* execution = new_execution(add.compilation);
        OK(ANeuralNetworksExecution_setInput(execution, 0, &type, values, sizeof values));
        OK(ANeuralNetworksExecution_setInput(execution, 1, &type, values, sizeof values));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 4 * room));
        EXPECT(BAD_STATE, ANeuralNetworksExecution_getOutputOperandRank(execution, 0, &rank));
        EXPECT(BAD_STATE, ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0, found));
        int expected = room == 6 ? ANEURALNETWORKS_NO_ERROR : ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE;
        EXPECT_TRUE(ANeuralNetworksExecution_compute(execution) == expected);
        EXPECT(BAD_DATA, ANeuralNetworksExecution_getOutputOperandRank(execution, -1, &rank));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_getOutputOperandRank(execution, 999, &rank));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_getOutputOperandDimensions(execution, -1, found));
        EXPECT(BAD_DATA, ANeuralNetworksExecution_getOutputOperandDimensions(execution, 999, found));
        rank = found[0] = found[1] = 0;
        EXPECT_TRUE(ANeuralNetworksExecution_getOutputOperandRank(execution, 0, &rank) == expected);
        EXPECT_TRUE(ANeuralNetworksExecution_getOutputOperandDimensions(execution, 0, found) == expected);
        EXPECT_TRUE(rank == 2 && found[0] == 2 && found[1] == 3);
        ANeuralNetworksExecution_free(execution);
    }
    EXPECT_TRUE(is_two(sum));
    free_compiled(add);
}

static void n048(void) {
    Compiled add = compiled(add_model());
    float sum[4];
    ANeuralNetworksExecution* execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_setTimeout(execution, 1));
    EXPECT_DONE_OR_MISSED(ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);
    execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_setTimeout(execution, UINT64_MAX));
    OK(ANeuralNetworksExecution_setLoopTimeout(execution, UINT64_MAX));
    OK(ANeuralNetworksExecution_compute(execution));
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);
}

static void n050(void) {
    ANeuralNetworksEvent* event = NULL;
    EXPECT(BAD_DATA, ANeuralNetworksEvent_createFromSyncFenceFd(-1, &event));
    EXPECT(BAD_DATA, ANeuralNetworksEvent_createFromSyncFenceFd(0, &event));
    EXPECT(BAD_DATA, ANeuralNetworksEvent_createFromSyncFenceFd(9999, &event));
    EXPECT_TRUE(event == NULL);
}

static void n051(void) {
    Compiled add = compiled(add_model());
    float sum[4] = {0};
    ANeuralNetworksEvent *first = NULL, *second = NULL, *third = NULL;
    const ANeuralNetworksEvent* hole[1] = {NULL};
    int fd = 0;
    ANeuralNetworksExecution* execution = ready_execution(add.compilation, ONES, sum);
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, NULL));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 1, 0, &first));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_startComputeWithDependencies(execution, hole, 1, 0, &first));
    EXPECT_TRUE(first == NULL);
    OK(ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, &first));
    OK(ANeuralNetworksEvent_getSyncFenceFd(first, &fd));
    EXPECT_TRUE(fd > 0);
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(fd, &second));
    close(fd);

    // An event of an execution and one of a descriptor are waited for alike.
    float twice[4] = {0};
    ANeuralNetworksExecution* next = ready_execution(add.compilation, sum, twice);
    const ANeuralNetworksEvent* both[2] = {first, second};
    EXPECT(BAD_DATA, ANeuralNetworksExecution_compute(new_execution(add.compilation)));
    OK(ANeuralNetworksExecution_startComputeWithDependencies(next, both, 2, UINT64_MAX, &third));
    OK(ANeuralNetworksEvent_wait(third));
    OK(ANeuralNetworksEvent_wait(second));
    EXPECT_TRUE(is_two(sum) && twice[0] == 3 && twice[3] == 3);
    ANeuralNetworksEvent_free(first);
    ANeuralNetworksEvent_free(second);
    ANeuralNetworksEvent_free(third);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksExecution_free(next);

    // Without a named device there is no limit on the duration, and without dependencies no fence.
    ANeuralNetworksCompilation* compilation = NULL;
    OK(ANeuralNetworksCompilation_create(add.model, &compilation));
    execution = ready_execution(finished(compilation), ONES, sum);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 1000, &first));
    OK(ANeuralNetworksExecution_startCompute(execution, &first));
    EXPECT(BAD_DATA, ANeuralNetworksEvent_getSyncFenceFd(first, &fd));
    EXPECT_TRUE(fd == -1);
    OK(ANeuralNetworksEvent_wait(first));
    ANeuralNetworksEvent_free(first);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    free_compiled(add);
}

// A dependency that never comes keeps nobody longer than the execution's timeout, and nobody at all whose execution cannot
// start.
static void timeouts(void) {
    Compiled add = compiled(add_model());
    float sum[4] = {0};
    ANeuralNetworksEvent *never = NULL, *done = NULL;
    int fd = eventfd(0, EFD_CLOEXEC);
    EXPECT_TRUE(fd > 0);
    OK(ANeuralNetworksEvent_createFromSyncFenceFd(fd, &never));
    close(fd);
    const ANeuralNetworksEvent* dependency[1] = {never};
    ANeuralNetworksExecution* execution = ready_execution(add.compilation, ONES, sum);
    OK(ANeuralNetworksExecution_setTimeout(execution, 20000000));
    OK(ANeuralNetworksExecution_startComputeWithDependencies(execution, dependency, 1, 0, &done));
    EXPECT(MISSED_DEADLINE_TRANSIENT, ANeuralNetworksEvent_wait(done));
    EXPECT_TRUE(sum[0] == 0);
    ANeuralNetworksEvent_free(done);
    EXPECT(BAD_STATE, ANeuralNetworksExecution_startComputeWithDependencies(execution, dependency, 1, 0, &done));
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksEvent_free(never);
    free_compiled(add);
}

static ANeuralNetworksExecution* reusable_execution(Compiled add, float* sum) {
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setReusable(execution, true));
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, 16));
    return execution;
}

typedef struct {
    ANeuralNetworksExecution* execution;
    ANeuralNetworksBurst* burst;
    int code;
} Rival;

static void* compute_by_burst(void* argument) {
    Rival* rival = argument;
    rival->code = ANeuralNetworksExecution_burstCompute(rival->execution, rival->burst);
    return NULL;
}

static void n060(void) {
    Compiled add = compiled(add_model()), other = compiled(add_model());
    ANeuralNetworksBurst *burst = NULL, *of_other = NULL;
    float sums[2][4] = {{0}, {0}};
    OK(ANeuralNetworksBurst_create(add.compilation, &burst));
    OK(ANeuralNetworksBurst_create(other.compilation, &of_other));
    ANeuralNetworksExecution* execution = reusable_execution(add, sums[0]);
    EXPECT(BAD_DATA, ANeuralNetworksExecution_burstCompute(execution, of_other));
    for (int run = 0; run < 100; run++) {
        memset(sums[0], 0, sizeof sums[0]);
        OK(ANeuralNetworksExecution_burstCompute(execution, burst));
        EXPECT_TRUE(is_two(sums[0]));
    }

    for (int round = 0; round < 20; round++) {
        Rival rivals[2] = {{execution, burst, 0}, {reusable_execution(add, sums[1]), burst, 0}};
        pthread_t threads[2];
        for (int at = 0; at < 2; at++) {
            EXPECT_TRUE(pthread_create(&threads[at], NULL, compute_by_burst, &rivals[at]) == 0);
        }
        for (int at = 0; at < 2; at++) {
            pthread_join(threads[at], NULL);
            EXPECT_TRUE(rivals[at].code == ANEURALNETWORKS_NO_ERROR || rivals[at].code == ANEURALNETWORKS_BAD_STATE);
        }
        EXPECT_TRUE(rivals[0].code == ANEURALNETWORKS_NO_ERROR || rivals[1].code == ANEURALNETWORKS_NO_ERROR);
        ANeuralNetworksExecution_free(rivals[1].execution);
    }
    ANeuralNetworksExecution_free(execution);

    // Memories and bursts go in either order.
    for (int memory_first = 0; memory_first < 2; memory_first++) {
        float* shared = NULL;
        ANeuralNetworksMemory* memory = new_memory(32, &shared);
        ANeuralNetworksBurst* own = NULL;
        OK(ANeuralNetworksBurst_create(add.compilation, &own));
        execution = new_execution(add.compilation);
        memcpy(shared, ONES, sizeof ONES);
        OK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, 16));
        OK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, 16, 16));
        OK(ANeuralNetworksExecution_burstCompute(execution, own));
        EXPECT_TRUE(is_two(shared + 4));
        ANeuralNetworksExecution_free(execution);
        if (memory_first) {
            ANeuralNetworksMemory_free(memory);
        }
        ANeuralNetworksBurst_free(own);
        if (!memory_first) {
            ANeuralNetworksMemory_free(memory);
        }
    }
    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksBurst_free(of_other);
    free_compiled(add);
    free_compiled(other);
}

static void n070(void) {
    Compiled add = compiled(add_model());
    ANeuralNetworksCompilation* unfinished = new_compilation(add.model);
    ANeuralNetworksMemoryDesc* desc = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, unfinished, 0, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 999, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 999, 1));
    const float frequencies[3] = {10, 0, -1};
    for (int at = 0; at < 3; at++) {
        EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, frequencies[at]));
        EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 0, frequencies[at]));
    }
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 0.5f));
    OK(ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    EXPECT(BAD_STATE, ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    EXPECT(BAD_STATE, ANeuralNetworksMemoryDesc_addOutputRole(desc, add.compilation, 0, 1));
    ANeuralNetworksMemoryDesc_free(desc);
    ANeuralNetworksCompilation_free(unfinished);
    free_compiled(add);
}

// y = RELU(x) of one type.
static Compiled relu(int32_t code, uint32_t rank, const uint32_t* dimensions, float scale, int32_t zero_point) {
    ANeuralNetworksModel* model = new_model();
    uint32_t input = 0, output = 1;
    OK(add_operand(model, type_of(code, rank, dimensions, scale, zero_point)));
    OK(add_operand(model, type_of(code, rank, dimensions, scale, zero_point)));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RELU, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return compiled(model);
}

// y = the real values of x, whose second dimension has these scales.
static Compiled dequantize(const float* scales) {
    const uint32_t dimensions[2] = {2, 2};
    ANeuralNetworksSymmPerChannelQuantParams params = {1, 2, scales};
    ANeuralNetworksModel* model = new_model();
    uint32_t input = 0, output = 1;
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL, 2, dimensions, 0, 0)));
    OK(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &params));
    OK(add_operand(model, type_of(TENSOR, 2, dimensions, 0, 0)));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_DEQUANTIZE, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    return compiled(model);
}

static void n071_channels(void) {
    const float scales[2][2] = {{1, 2}, {1, 3}};
    Compiled first = dequantize(scales[0]), same = dequantize(scales[0]), other = dequantize(scales[1]);
    ANeuralNetworksMemoryDesc* desc = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, first.compilation, 0, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, other.compilation, 0, 1));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, same.compilation, 0, 1));
    ANeuralNetworksMemoryDesc_free(desc);
    free_compiled(first);
    free_compiled(same);
    free_compiled(other);
}

static void n071(void) {
    n071_channels();
    const uint32_t plain[2] = {2, 2}, longer[2] = {2, 3}, higher[3] = {1, 2, 2};
    const int32_t quantised = ANEURALNETWORKS_TENSOR_QUANT8_ASYMM;
    Compiled first = relu(quantised, 2, plain, 1, 8);
    Compiled others[5] = {
        relu(TENSOR, 2, plain, 0, 0),         relu(quantised, 2, plain, 0.5f, 8), relu(quantised, 2, plain, 1, 9),
        relu(quantised, 2, longer, 1, 8),     relu(quantised, 3, higher, 1, 8),
    };
    for (int at = 0; at < 5; at++) {
        ANeuralNetworksMemoryDesc* desc = NULL;
        OK(ANeuralNetworksMemoryDesc_create(&desc));
        OK(ANeuralNetworksMemoryDesc_addInputRole(desc, first.compilation, 0, 1));
        EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, others[at].compilation, 0, 1));
        EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addOutputRole(desc, others[at].compilation, 0, 1));
        ANeuralNetworksMemoryDesc_free(desc);
        free_compiled(others[at]);
    }
    free_compiled(first);
}

static void n072(void) {
    Compiled add = compiled(add_model());
    ANeuralNetworksMemoryDesc* desc = NULL;
    const uint32_t other[1] = {5}, higher[2] = {1, 4}, open[1] = {0};
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_setDimensions(desc, 1, other));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_setDimensions(desc, 2, higher));
    OK(ANeuralNetworksMemoryDesc_setDimensions(desc, 1, open));
    OK(ANeuralNetworksMemoryDesc_setDimensions(desc, 1, FOUR));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    EXPECT(BAD_STATE, ANeuralNetworksMemoryDesc_setDimensions(desc, 1, FOUR));
    ANeuralNetworksMemoryDesc_free(desc);
    free_compiled(add);

    // A scalar has no dimensions, whichever is said first.
    ANeuralNetworksModel* model = new_model();
    uint32_t inputs[3] = {0, 1, 2}, output = 3, arguments[2] = {0, 2};
    OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, FOUR, 0, 0)));
    OK(ANeuralNetworksModel_setOperandValue(model, 1, ONES, sizeof ONES));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, arguments, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    Compiled scalar = compiled(model);
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, scalar.compilation, 1, 1));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_setDimensions(desc, 1, FOUR));
    ANeuralNetworksMemoryDesc_free(desc);
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    OK(ANeuralNetworksMemoryDesc_setDimensions(desc, 1, FOUR));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_addInputRole(desc, scalar.compilation, 1, 1));
    ANeuralNetworksMemoryDesc_free(desc);
    free_compiled(scalar);
}

static void n073(void) {
    Compiled add = compiled(add_model());
    ANeuralNetworksMemoryDesc* desc = NULL;
    ANeuralNetworksMemory* memory = NULL;
    OK(ANeuralNetworksMemoryDesc_create(&desc));
    EXPECT(BAD_DATA, ANeuralNetworksMemoryDesc_finish(desc));
    EXPECT(BAD_STATE, ANeuralNetworksMemory_createFromDesc(desc, &memory));
    OK(ANeuralNetworksMemoryDesc_addInputRole(desc, add.compilation, 0, 1));
    EXPECT(BAD_STATE, ANeuralNetworksMemory_createFromDesc(desc, &memory));
    OK(ANeuralNetworksMemoryDesc_finish(desc));
    EXPECT(BAD_STATE, ANeuralNetworksMemoryDesc_finish(desc));
    EXPECT_TRUE(memory == NULL);
    ANeuralNetworksMemoryDesc_free(desc);
    free_compiled(add);
}

static void n074(void) {
    Compiled add = compiled(add_model());
    ANeuralNetworksMemory* device = device_memory(add, 1);
    float* shared = NULL;
    ANeuralNetworksMemory *fitting = new_memory(16, &shared), *small = new_memory(8, NULL), *large = new_memory(32, NULL);
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(device, fitting));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(small, device));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(large, device));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(small, large));
    memcpy(shared, ONES, sizeof ONES);
    OK(ANeuralNetworksMemory_copy(fitting, device));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(device, small));
    EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(device, large));
    memset(shared, 0, 16);
    OK(ANeuralNetworksMemory_copy(device, fitting));
    EXPECT_TRUE(shared[0] == 1 && shared[3] == 1);
    OK(ANeuralNetworksMemory_copy(fitting, fitting));
    OK(ANeuralNetworksMemory_copy(device, device));

    // After a failure the destination has no value, whatever it had before.
    ANeuralNetworksMemory* never_written = device_memory(add, 1);
    ANeuralNetworksMemory* const sources[3] = {small, large, never_written};
    for (int at = 0; at < 3; at++) {
        OK(ANeuralNetworksMemory_copy(fitting, device));
        EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(sources[at], device));
        EXPECT(BAD_DATA, ANeuralNetworksMemory_copy(device, fitting));
    }
    ANeuralNetworksMemory_free(never_written);
    ANeuralNetworksMemory_free(device);
    ANeuralNetworksMemory_free(fitting);
    ANeuralNetworksMemory_free(small);
    ANeuralNetworksMemory_free(large);
    free_compiled(add);
}

// A reusable execution is computed in all ways, one after the other.
static void reuse(void) {
    Compiled add = compiled(add_model());
    float sum[4];
    ANeuralNetworksBurst* burst = NULL;
    ANeuralNetworksEvent* event = NULL;
    OK(ANeuralNetworksBurst_create(add.compilation, &burst));
    ANeuralNetworksExecution* execution = reusable_execution(add, sum);
    for (int round = 0; round < 8; round++) {
        memset(sum, 0, sizeof sum);
        switch (round % 4) {
            case 0:
                OK(ANeuralNetworksExecution_compute(execution));
                break;
            case 1:
                OK(ANeuralNetworksExecution_burstCompute(execution, burst));
                break;
            case 2:
                OK(ANeuralNetworksExecution_startCompute(execution, &event));
                OK(ANeuralNetworksEvent_wait(event));
                ANeuralNetworksEvent_free(event);
                break;
            default:
                OK(ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, &event));
                OK(ANeuralNetworksEvent_wait(event));
                ANeuralNetworksEvent_free(event);
        }
        EXPECT_TRUE(is_two(sum));
        EXPECT(BAD_STATE, ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 16));
    }
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksBurst_free(burst);
    free_compiled(add);
}

// Objects may be freed in any order; what still needs them keeps them. One buffer may be input and output.
static void lifetimes(void) {
    float values[4] = {1, 1, 1, 1};
    ANeuralNetworksModel* model = add_model();
    ANeuralNetworksCompilation* compilation = new_compilation(model);
    ANeuralNetworksModel_free(model);
    finished(compilation);
    ANeuralNetworksExecution* execution = ready_execution(compilation, values, values);
    ANeuralNetworksCompilation_free(compilation);
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(is_two(values));
    ANeuralNetworksExecution_free(execution);
}

// A value of more than 128 bytes stays with the caller until the model is finished.
static void large_values(void) {
    const uint32_t forty[1] = {40};
    float constant[40], x[40], sum[40];
    int32_t none = ANEURALNETWORKS_FUSED_NONE;
    uint32_t inputs[3] = {0, 1, 2}, output = 3;
    ANeuralNetworksModel* model = new_model();
    OK(add_operand(model, type_of(TENSOR, 1, forty, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, forty, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, forty, 0, 0)));
    OK(ANeuralNetworksModel_setOperandValue(model, 1, constant, sizeof constant));
    OK(ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none));
    none = ANEURALNETWORKS_FUSED_RELU6;
    for (int at = 0; at < 40; at++) {
        constant[at] = 100;
        x[at] = (float)at;
    }
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, inputs, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    Compiled add = compiled(model);
    ANeuralNetworksExecution* execution = new_execution(add.compilation);
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, x, sizeof x));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, sum, sizeof sum));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT_TRUE(sum[0] == 100 && sum[39] == 139);
    ANeuralNetworksExecution_free(execution);
    free_compiled(add);
}

// An output may lie over the inputs that it is computed from; nothing is written behind it.
static void in_place(void) {
    static const uint32_t four[2] = {1, 4};
    const ANeuralNetworksOperandType floats = type_of(TENSOR, 2, four, 0, 0);
    float values[8] = {1, 1, 1, 1, 9, 9, 9, 9};
    Compiled add = compiled(open_add());
    for (int round = 1; round <= 4; round++) {
        ANeuralNetworksExecution* execution = new_execution(add.compilation);
        OK(ANeuralNetworksExecution_setInput(execution, 0, &floats, values, sizeof values / 2));
        OK(ANeuralNetworksExecution_setInput(execution, 1, &floats, values, sizeof values / 2));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, values, sizeof values));
        OK(ANeuralNetworksExecution_compute(execution));
        EXPECT_TRUE(values[0] == (float)(1 << round) && values[3] == (float)(1 << round));
        EXPECT_TRUE(values[4] == 9 && values[7] == 9);
        ANeuralNetworksExecution_free(execution);
    }
    free_compiled(add);
}

// IF runs the model that its condition chooses.
static void control_flow(void) {
    const uint32_t one[1] = {1};
    ANeuralNetworksModel* branches[2];
    for (int branch = 0; branch < 2; branch++) {
        uint32_t input = 0, output = 1;
        branches[branch] = new_model();
        OK(add_operand(branches[branch], type_of(TENSOR, 1, one, 0, 0)));
        OK(add_operand(branches[branch], type_of(TENSOR, 1, one, 0, 0)));
        OK(ANeuralNetworksModel_addOperation(branches[branch],
                                             branch ? ANEURALNETWORKS_NEG : ANEURALNETWORKS_ABS, 1, &input, 1, &output));
        OK(ANeuralNetworksModel_identifyInputsAndOutputs(branches[branch], 1, &input, 1, &output));
        OK(ANeuralNetworksModel_finish(branches[branch]));
    }
    ANeuralNetworksModel* model = new_model();
    uint32_t inputs[4] = {0, 1, 2, 3}, arguments[2] = {0, 3}, output = 4;
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_BOOL8, 1, one, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_MODEL, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, one, 0, 0)));
    OK(add_operand(model, type_of(TENSOR, 1, one, 0, 0)));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 1, branches[0]));
    OK(ANeuralNetworksModel_setOperandValueFromModel(model, 2, branches[1]));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_IF, 4, inputs, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, arguments, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    Compiled both = compiled(model);
    for (uint8_t is_true = 0; is_true < 2; is_true++) {
        float x = 3, y = 0;
        ANeuralNetworksExecution* execution = new_execution(both.compilation);
        OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, &is_true, 1));
        OK(ANeuralNetworksExecution_setInput(execution, 1, NULL, &x, 4));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, &y, 4));
        OK(ANeuralNetworksExecution_compute(execution));
        EXPECT_TRUE(y == (is_true ? 3 : -3));
        ANeuralNetworksExecution_free(execution);
    }
    free_compiled(both);
    ANeuralNetworksModel_free(branches[0]);
    ANeuralNetworksModel_free(branches[1]);
}

// A recurrent layer with the activations that TFLite sends beyond those of other operations: tanh is 4, logistic 6.
static void recurrent_activations(void) {
    const int32_t codes[2] = {4, 6};
    const float expected[2] = {0.7615942F, 0.7310586F};
    const uint32_t one[1] = {1}, square[2] = {1, 1};
    for (int at = 0; at < 2; at++) {
        ANeuralNetworksModel* model = new_model();
        ANeuralNetworksOperandType matrix = type_of(TENSOR, 2, square, 0, 0);
        const float zero = 0;
        const uint32_t inputs[6] = {0, 1, 2, 3, 4, 5}, outputs[2] = {6, 7}, argument = 0;
        for (int operand = 0; operand < 8; operand++) {
            ANeuralNetworksOperandType type = matrix;
            if (operand == 3) {
                type = type_of(TENSOR, 1, one, 0, 0);
            } else if (operand == 5) {
                type = type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0);
            }
            OK(add_operand(model, type));
        }
        OK(ANeuralNetworksModel_setOperandValue(model, 1, ONES, 4));
        OK(ANeuralNetworksModel_setOperandValue(model, 2, ONES, 4));
        OK(ANeuralNetworksModel_setOperandValue(model, 3, &zero, 4));
        OK(ANeuralNetworksModel_setOperandValue(model, 4, &zero, 4));
        OK(ANeuralNetworksModel_setOperandValue(model, 5, &codes[at], 4));
        OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_RNN, 6, inputs, 2, outputs));
        OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &argument, 2, outputs));
        OK(ANeuralNetworksModel_finish(model));
        Compiled rnn = compiled(model);
        ANeuralNetworksExecution* execution = new_execution(rnn.compilation);
        float state = 0, output = 0;
        OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, ONES, 4));
        OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, &state, 4));
        OK(ANeuralNetworksExecution_setOutput(execution, 1, NULL, &output, 4));
        OK(ANeuralNetworksExecution_compute(execution));
        EXPECT_TRUE(output > expected[at] - 1e-5F && output < expected[at] + 1e-5F && state == output);
        ANeuralNetworksExecution_free(execution);
        free_compiled(rnn);
    }
}

// What the library says of itself and of its devices.
static void introspection(void) {
    const char *name = NULL, *version = NULL;
    int32_t type = -1;
    int64_t level = 0;
    uint32_t count = 0;
    ANeuralNetworksDevice* device = test_device();
    ANeuralNetworksDevice* cpu = NULL;
    bool has_extension = true;
    EXPECT_TRUE(ANeuralNetworks_getRuntimeFeatureLevel() == ANEURALNETWORKS_FEATURE_LEVEL_8);
    EXPECT_TRUE(ANeuralNetworks_getDefaultLoopTimeout() == UINT64_C(2000000000));
    EXPECT_TRUE(ANeuralNetworks_getMaximumLoopTimeout() == UINT64_C(15000000000));
    OK(ANeuralNetworksDevice_getVersion(device, &version));
    OK(ANeuralNetworksDevice_getType(device, &type));
    OK(ANeuralNetworksDevice_getFeatureLevel(device, &level));
    OK(ANeuralNetworksDevice_wait(device));
    OK(ANeuralNetworksDevice_getExtensionSupport(device, "com.nobody.has_this", &has_extension));
    EXPECT_TRUE(strlen(version) > 0 && type == ANEURALNETWORKS_DEVICE_CPU && level == 1000007 && !has_extension);
    OK(ANeuralNetworks_getDeviceCount(&count));
    OK(ANeuralNetworks_getDevice(count - 1, &cpu));
    OK(ANeuralNetworksDevice_getName(cpu, &name));
    EXPECT_TRUE(strcmp(name, "nnapi-reference") == 0);
}

int main(int count, char** names) {
    static const Case cases[] = {
        {"n040", n040},
        {"n041", n041},
        {"n042", n042},
        {"n043", n043},
        {"n044", n044},
        {"n045", n045},
        {"n046", n046},
        {"n047", n047},
        {"n048", n048},
        {"n050", n050},
        {"n051", n051},
        {"timeouts", timeouts},
        {"n060", n060},
        {"n070", n070},
        {"n071", n071},
        {"n072", n072},
        {"n073", n073},
        {"n074", n074},
        {"reuse", reuse},
        {"lifetimes", lifetimes},
        {"large_values", large_values},
        {"in_place", in_place},
        {"control_flow", control_flow},
        {"recurrent_activations", recurrent_activations},
        {"introspection", introspection},
    };
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}

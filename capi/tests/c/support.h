// Help for C programs that test libneuralnetworks.so: expectations, and models to test with.

#ifndef NNHAL_TEST_SUPPORT_H
#define NNHAL_TEST_SUPPORT_H

#include <NeuralNetworks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int expectations = 0;
static int failures = 0;

static inline void expect(int got, int wanted, const char* call, int line) {
    expectations++;
    if (got != wanted) {
        failures++;
        fprintf(stderr, "line %d: %s is %d, expected %d; last error: %s\n", line, call, got, wanted, nnhal_last_error());
    } else if (wanted != ANEURALNETWORKS_NO_ERROR && strlen(nnhal_last_error()) < 30) {
        failures++;
        fprintf(stderr, "line %d: %s is explained by no more than \"%s\"\n", line, call, nnhal_last_error());
    }
}

#define EXPECT(code, call) expect((call), ANEURALNETWORKS_##code, #call, __LINE__)
#define OK(call) EXPECT(NO_ERROR, call)

static inline void expect_true(int is_true, const char* what, int line) {
    expectations++;
    if (!is_true) {
        failures++;
        fprintf(stderr, "line %d: not %s\n", line, what);
    }
}

#define EXPECT_TRUE(condition) expect_true((condition), #condition, __LINE__)

// A computation that may be late must be so in one of these ways.
static inline void expect_done_or_missed(int got, const char* call, int line) {
    int is_fine = got == ANEURALNETWORKS_NO_ERROR || got == ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT ||
                  got == ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT;
    expectations++;
    if (!is_fine) {
        failures++;
        fprintf(stderr, "line %d: %s is %d; last error: %s\n", line, call, got, nnhal_last_error());
    }
}

#define EXPECT_DONE_OR_MISSED(call) expect_done_or_missed((call), #call, __LINE__)

static const uint32_t FOUR[1] = {4};
static const float ONES[4] = {1, 1, 1, 1};

static inline ANeuralNetworksOperandType type_of(int32_t code, uint32_t count, const uint32_t* dimensions, float scale,
                                          int32_t zero_point) {
    ANeuralNetworksOperandType type = {code, count, dimensions, scale, zero_point};
    return type;
}

static inline int add_operand(ANeuralNetworksModel* model, ANeuralNetworksOperandType type) {
    return ANeuralNetworksModel_addOperand(model, &type);
}

static inline ANeuralNetworksModel* new_model(void) {
    ANeuralNetworksModel* model = NULL;
    OK(ANeuralNetworksModel_create(&model));
    return model;
}

// sum = x + constant, four floats: operands 0 x, 1 the constant, 2 the activation, 3 the sum.
static inline ANeuralNetworksModel* unfinished_add(void) {
    ANeuralNetworksModel* model = new_model();
    ANeuralNetworksOperandType floats = type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 1, FOUR, 0, 0);
    int32_t none = ANEURALNETWORKS_FUSED_NONE;
    uint32_t inputs[3] = {0, 1, 2}, output = 3, argument = 0;
    OK(add_operand(model, floats));
    OK(add_operand(model, floats));
    OK(add_operand(model, type_of(ANEURALNETWORKS_INT32, 0, NULL, 0, 0)));
    OK(add_operand(model, floats));
    OK(ANeuralNetworksModel_setOperandValue(model, 1, ONES, sizeof ONES));
    OK(ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none));
    OK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &argument, 1, &output));
    return model;
}

static inline ANeuralNetworksModel* add_model(void) {
    ANeuralNetworksModel* model = unfinished_add();
    OK(ANeuralNetworksModel_finish(model));
    return model;
}

// The driver's device that NNHAL_TEST_DEVICE names, the first of all without it.
static inline ANeuralNetworksDevice* test_device(void) {
    const char* wanted = getenv("NNHAL_TEST_DEVICE");
    uint32_t count = 0;
    ANeuralNetworksDevice* found = NULL;
    OK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t index = 0; index < count && !found; index++) {
        ANeuralNetworksDevice* device = NULL;
        const char* name = NULL;
        OK(ANeuralNetworks_getDevice(index, &device));
        OK(ANeuralNetworksDevice_getName(device, &name));
        if (!wanted || strcmp(name, wanted) == 0) {
            found = device;
        }
    }
    EXPECT_TRUE(found != NULL);
    return found;
}

static inline ANeuralNetworksCompilation* new_compilation(ANeuralNetworksModel* model) {
    ANeuralNetworksCompilation* compilation = NULL;
    const ANeuralNetworksDevice* device = test_device();
    OK(ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    return compilation;
}

static inline ANeuralNetworksCompilation* finished(ANeuralNetworksCompilation* compilation) {
    OK(ANeuralNetworksCompilation_finish(compilation));
    return compilation;
}

static inline ANeuralNetworksExecution* new_execution(ANeuralNetworksCompilation* compilation) {
    ANeuralNetworksExecution* execution = NULL;
    OK(ANeuralNetworksExecution_create(compilation, &execution));
    return execution;
}

// A test and its name.
typedef struct {
    const char* name;
    void (*run)(void);
} Case;

// Runs the tests that the arguments name.
static inline int run_cases(int count, char** names, const Case* cases, size_t number) {
    for (int index = 1; index < count; index++) {
        int before = expectations;
        for (size_t at = 0; at < number; at++) {
            if (strcmp(names[index], cases[at].name) == 0) {
                cases[at].run();
            }
        }
        if (expectations == before) {
            fprintf(stderr, "there is no test %s\n", names[index]);
            failures++;
        }
    }
    return failures == 0 ? 0 : 1;
}

#endif

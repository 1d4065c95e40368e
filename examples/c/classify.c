// A classifier of three classes through the C API of NNAPI: built, compiled, computed once, and then many times by burst.
//
//     cc classify.c -o classify $(pkg-config --cflags --libs neuralnetworks)
//     ./classify [DEVICE]
//
// Without a device, all there are share the work. Any program for NNAPI is built and run the same way.
#define _POSIX_C_SOURCE 199309L

#include <android/NeuralNetworks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FEATURES = 4, CLASSES = 3, RUNS = 10000 };

// Ends the program if a call has failed, with the reason.
static void check(int code, const char* what) {
    if (code != ANEURALNETWORKS_NO_ERROR) {
        fprintf(stderr, "%s: code %d: %s\n", what, code, nnhal_last_error());
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

// The operands of the model, by their numbers.
enum { X, WEIGHTS, BIAS, ACTIVATION, SCORES, BETA, PROBABILITIES };

static void add_tensor(ANeuralNetworksModel* model, uint32_t rank, const uint32_t* dimensions) {
    ANeuralNetworksOperandType type = {ANEURALNETWORKS_TENSOR_FLOAT32, rank, dimensions, 0, 0};
    CHECK(ANeuralNetworksModel_addOperand(model, &type));
}

static void add_scalar(ANeuralNetworksModel* model, int32_t code) {
    ANeuralNetworksOperandType type = {code, 0, NULL, 0, 0};
    CHECK(ANeuralNetworksModel_addOperand(model, &type));
}

// probabilities = softmax(weights * x + bias)
static ANeuralNetworksModel* build(void) {
    static const float weights[CLASSES][FEATURES] = {{2, 0, 0, 0}, {0, 2, 0, 0}, {0, 0, 1, 1}};
    static const float bias[CLASSES] = {0, 0, -1};
    const uint32_t x[2] = {1, FEATURES}, matrix[2] = {CLASSES, FEATURES}, vector[1] = {CLASSES};
    const uint32_t scores[2] = {1, CLASSES};
    const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const float beta = 1;
    ANeuralNetworksModel* model = NULL;

    CHECK(ANeuralNetworksModel_create(&model));
    add_tensor(model, 2, x);
    add_tensor(model, 2, matrix);
    add_tensor(model, 1, vector);
    add_scalar(model, ANEURALNETWORKS_INT32);
    add_tensor(model, 2, scores);
    add_scalar(model, ANEURALNETWORKS_FLOAT32);
    add_tensor(model, 2, scores);
    CHECK(ANeuralNetworksModel_setOperandValue(model, WEIGHTS, weights, sizeof weights));
    CHECK(ANeuralNetworksModel_setOperandValue(model, BIAS, bias, sizeof bias));
    CHECK(ANeuralNetworksModel_setOperandValue(model, ACTIVATION, &none, sizeof none));
    CHECK(ANeuralNetworksModel_setOperandValue(model, BETA, &beta, sizeof beta));

    const uint32_t dense[4] = {X, WEIGHTS, BIAS, ACTIVATION}, softmax[2] = {SCORES, BETA};
    const uint32_t input = X, middle = SCORES, output = PROBABILITIES;
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_FULLY_CONNECTED, 4, dense, 1, &middle));
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_SOFTMAX, 2, softmax, 1, &output));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    CHECK(ANeuralNetworksModel_finish(model));
    return model;
}

static const ANeuralNetworksDevice* find_device(const char* wanted) {
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t index = 0; index < count; index++) {
        ANeuralNetworksDevice* device = NULL;
        const char* name = NULL;
        CHECK(ANeuralNetworks_getDevice(index, &device));
        CHECK(ANeuralNetworksDevice_getName(device, &name));
        if (strcmp(name, wanted) == 0) {
            return device;
        }
    }
    fprintf(stderr, "there is no device %s\n", wanted);
    exit(1);
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int count, char** arguments) {
    float x[FEATURES] = {0.5f, 1.5f, 0, 0}, probabilities[CLASSES];
    ANeuralNetworksModel* model = build();
    ANeuralNetworksCompilation* compilation = NULL;
    ANeuralNetworksExecution* execution = NULL;
    ANeuralNetworksBurst* burst = NULL;

    if (count > 1) {
        const ANeuralNetworksDevice* device = find_device(arguments[1]);
        CHECK(ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    } else {
        CHECK(ANeuralNetworksCompilation_create(model, &compilation));
    }
    CHECK(ANeuralNetworksCompilation_finish(compilation));

    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setReusable(execution, true));
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, x, sizeof x));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, probabilities, sizeof probabilities));
    CHECK(ANeuralNetworksExecution_compute(execution));
    printf("probabilities: %.4f %.4f %.4f\n", probabilities[0], probabilities[1], probabilities[2]);

    CHECK(ANeuralNetworksBurst_create(compilation, &burst));
    double start = microseconds();
    for (int run = 0; run < RUNS; run++) {
        x[0] = (float)run / RUNS;
        CHECK(ANeuralNetworksExecution_burstCompute(execution, burst));
    }
    printf("%d executions by burst, %.2f us each\n", RUNS, (microseconds() - start) / RUNS);
    printf("probabilities: %.4f %.4f %.4f\n", probabilities[0], probabilities[1], probabilities[2]);

    ANeuralNetworksBurst_free(burst);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    return 0;
}

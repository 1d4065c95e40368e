// A vendor's extension: the Fibonacci numbers of the example driver, and who may not have them.

#include "support.h"

#define NAME "com.example.fibonacci"

enum { INT64 = 0, TENSOR_QUANT64_ASYMM = 1, FIBONACCI = 0 };

static void extension(void) {
    const uint32_t seven[1] = {7};
    const uint32_t input = 0, output = 1;
    struct {
        double scale;
        int64_t zero_point;
    } quantisation = {0.5, 100};
    int32_t int64_type = 0, numbers_type = 0, operation = 0;
    bool is_supported = false;
    ANeuralNetworksDevice* device = test_device();
    OK(ANeuralNetworksDevice_getExtensionSupport(device, NAME, &is_supported));
    EXPECT_TRUE(is_supported);

    ANeuralNetworksModel* model = new_model();
    OK(ANeuralNetworksModel_getExtensionOperandType(model, NAME, INT64, &int64_type));
    OK(ANeuralNetworksModel_getExtensionOperandType(model, NAME, TENSOR_QUANT64_ASYMM, &numbers_type));
    OK(ANeuralNetworksModel_getExtensionOperationType(model, NAME, FIBONACCI, &operation));
    EXPECT_TRUE(int64_type >= 0x10000 && numbers_type == int64_type + 1 && operation == int64_type);
    // Scalars have no dimensions, quantisation is in the parameters, and there is no third type.
    EXPECT(BAD_DATA, add_operand(model, type_of(int64_type, 1, seven, 0, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(numbers_type, 1, seven, 0.5f, 0)));
    EXPECT(BAD_DATA, add_operand(model, type_of(int64_type + 2, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(int64_type, 0, NULL, 0, 0)));
    OK(add_operand(model, type_of(numbers_type, 1, seven, 0, 0)));
    OK(add_operand(model, type_of(ANEURALNETWORKS_TENSOR_FLOAT32, 1, seven, 0, 0)));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandExtensionData(model, 2, &quantisation, sizeof quantisation));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandExtensionData(model, 9, &quantisation, sizeof quantisation));
    EXPECT(BAD_DATA, ANeuralNetworksModel_setOperandExtensionData(model, 1, &quantisation, 0));
    OK(ANeuralNetworksModel_setOperandExtensionData(model, 1, &quantisation, sizeof quantisation));
    OK(ANeuralNetworksModel_setOperandExtensionData(model, 1, NULL, 0));
    OK(ANeuralNetworksModel_setOperandExtensionData(model, 1, &quantisation, sizeof quantisation));
    OK(ANeuralNetworksModel_setOperandValue(model, 2, NULL, 0));
    OK(ANeuralNetworksModel_addOperation(model, operation, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &input, 1, &output));
    OK(ANeuralNetworksModel_finish(model));
    EXPECT(BAD_STATE, ANeuralNetworksModel_setOperandExtensionData(model, 1, NULL, 0));

    ANeuralNetworksCompilation* compilation = new_compilation(model);
    int attribute = 5;
    EXPECT(UNEXPECTED_NULL,
           ANeuralNetworksCompilation_addExtensionAttribute(NULL, NAME, 0, &attribute, sizeof attribute));
    EXPECT(UNEXPECTED_NULL,
           ANeuralNetworksCompilation_addExtensionAttribute(compilation, NULL, 0, &attribute, sizeof attribute));
    EXPECT(UNEXPECTED_NULL,
           ANeuralNetworksCompilation_addExtensionAttribute(compilation, NAME, 0, NULL, sizeof attribute));
    EXPECT(BAD_DATA, ANeuralNetworksCompilation_addExtensionAttribute(compilation, "com.example.none", 0, NULL, 0));
    OK(ANeuralNetworksCompilation_addExtensionAttribute(compilation, NAME, 0, &attribute, sizeof attribute));
    OK(ANeuralNetworksCompilation_addExtensionAttribute(compilation, NAME, 1, NULL, 0));
    EXPECT(BAD_DATA,
           ANeuralNetworksCompilation_addExtensionAttribute(compilation, NAME, 0, &attribute, sizeof attribute));
    finished(compilation);
    EXPECT(BAD_STATE, ANeuralNetworksCompilation_addExtensionAttribute(compilation, NAME, 2, NULL, 0));
    ANeuralNetworksExecution* execution = new_execution(compilation);
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_addExtensionAttribute(NULL, NAME, 0, NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_addExtensionAttribute(execution, NULL, 0, NULL, 0));
    EXPECT(UNEXPECTED_NULL, ANeuralNetworksExecution_addExtensionAttribute(execution, NAME, 0, NULL, 4));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_addExtensionAttribute(execution, "com.example.none", 0, NULL, 0));
    OK(ANeuralNetworksExecution_addExtensionAttribute(execution, NAME, 0, &attribute, sizeof attribute));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_addExtensionAttribute(execution, NAME, 0, NULL, 0));
    int64_t count = 7, numbers[7] = {0};
    const int64_t expected[7] = {1, 1, 2, 3, 5, 8, 13};
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setInput(execution, 0, NULL, &count, 4));
    OK(ANeuralNetworksExecution_setInput(execution, 0, NULL, &count, sizeof count));
    EXPECT(BAD_DATA, ANeuralNetworksExecution_setOutput(execution, 0, NULL, numbers, 48));
    OK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, numbers, sizeof numbers));
    OK(ANeuralNetworksExecution_compute(execution));
    EXPECT(BAD_STATE, ANeuralNetworksExecution_addExtensionAttribute(execution, NAME, 1, NULL, 0));
    for (int at = 0; at < 7; at++) {
        EXPECT_TRUE((double)(numbers[at] - quantisation.zero_point) * quantisation.scale == (double)expected[at]);
    }
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
}

int main(int count, char** names) {
    static const Case cases[] = {{"extension", extension}};
    return run_cases(count, names, cases, sizeof cases / sizeof *cases);
}

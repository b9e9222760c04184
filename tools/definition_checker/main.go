// Says what an API server thinks of a custom resource definition and of objects of its kind, with the server's own code.
//
// It reads {"definition": ..., "objects": [...]} and writes {"definition": [errors], "objects": [[errors], ...]}. An object goes through
// what a create call goes through: pruning, defaults, the schema, the rules.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

type answer struct {
	Definition []string   `json:"definition"`
	Objects    [][]string `json:"objects"`
}

func main() {
	var question struct {
		Definition json.RawMessage `json:"definition"`
		Objects    json.RawMessage `json:"objects"`
	}
	must(json.NewDecoder(os.Stdin).Decode(&question))
	var given apiextensionsv1.CustomResourceDefinition
	must(json.Unmarshal(question.Definition, &given))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&given)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&given.Spec)
	var definition apiextensions.CustomResourceDefinition
	must(apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&given, &definition, nil))
	version := definition.Spec.Versions[0].Name
	definition.Status.StoredVersions = []string{version}
	ctx := context.Background()
	result := answer{Definition: texts(validation.ValidateCustomResourceDefinition(ctx, &definition)), Objects: [][]string{}}

	properties, err := apiextensions.GetSchemaForVersion(&definition, version)
	must(err)
	structural, err := schema.NewStructural(properties.OpenAPIV3Schema)
	must(err)
	validator, _, err := schemavalidation.NewSchemaValidator(properties.OpenAPIV3Schema)
	must(err)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	var objects []map[string]interface{}
	must(utiljson.Unmarshal(question.Objects, &objects)) // whole numbers stay whole
	for _, object := range objects {
		pruning.Prune(object, structural, true)
		defaulting.Default(object, structural)
		errors := schemavalidation.ValidateCustomResource(nil, object, validator)
		if len(errors) == 0 {
			errors, _ = rules.Validate(ctx, nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		}
		result.Objects = append(result.Objects, texts(errors))
	}
	must(json.NewEncoder(os.Stdout).Encode(result))
}

func texts(errors field.ErrorList) []string {
	words := []string{}
	for _, err := range errors {
		words = append(words, err.Error())
	}
	return words
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
